// Credit: of turns, spans and tokens, as colour and in numbers.

function methodsOf(record) { return [...new Set(record.turns.flatMap((turn) => turn.methods))]; }

function colours(record) {
  const names = methodsOf(record), has = (value) => record.turns.some((turn) => turn.samples.some((own) => own[value] !== undefined));
  return [
    ...(names.length ? ["credit"] : []),
    ...(names.length > 1 ? names.map((name) => "credit of " + name) : []),
    ...(has(3) ? ["advantage"] : []),
    ...(has(2) ? ["log-probability"] : []),
    "nothing",
  ];
}

function colourOf(record) {
  const found = colours(record);
  return found.includes(place.colour) ? place.colour : found[0];
}

const unitsOf = new WeakMap();
function units(turn) {
  if (!unitsOf.has(turn)) unitsOf.set(turn, placesIn(turn.reply));
  return unitsOf.get(turn);
}

// The text of a reply as it is shown: one without any is seen, too.
function shownReply(turn) { return turn.reply.trim() ? turn.reply : EMPTY; }

// [start, end, value, what] of the characters of a turn's reply.
function valuesOf(turn, by) {
  const at = units(turn);
  if (by.startsWith("credit")) {
    const only = by.slice("credit of ".length);
    return turn.credits.filter((credit) => !only || credit.method === only).map((credit) => {
      const why = (credit.reason ? " (" + credit.reason + ")" : "") + (credit.advantage ? " (advantage)" : "");
      const [a, b] = credit.span ? credit.span.map(at) : [0, shownReply(turn).length];
      return [a, b, credit.value, credit.method + " " + signed(credit.value) + why];
    });
  }
  return turn.samples.filter(([a, b]) => by !== "nothing" && b > a).map(([a, b, logprob, advantage]) => {
    const said = advantage === undefined ? "" : "advantage " + signed(advantage) + ", ";
    return [at(a), at(b), by === "advantage" ? advantage : logprob, said + "log-probability " + number(logprob) + " nats"];
  });
}

// The reply cut where a value begins or ends: [start, end, value, what]; values that overlap add up.
function pieces(values, length) {
  if (!values.length) return [];
  const begins = new Map(), ends = new Map(), cuts = new Set([0, length]);
  for (const value of values) {
    const a = Math.min(value[0], length), b = Math.min(value[1], length);
    if (b <= a) continue;
    cuts.add(a).add(b);
    begins.set(a, [...(begins.get(a) || []), value]);
    ends.set(b, [...(ends.get(b) || []), value]);
  }
  const at = [...cuts].sort((x, y) => x - y), open = new Set(), out = [];
  for (let i = 0; i + 1 < at.length; i++) {
    (ends.get(at[i]) || []).forEach((value) => open.delete(value));
    (begins.get(at[i]) || []).forEach((value) => open.add(value));
    const known = [...open].filter((value) => value[2] !== null && value[2] !== undefined);
    const total = known.length ? sum(known.map((value) => value[2])) : null;
    out.push([at[i], at[i + 1], total, [...open].map((value) => value[3]).join("; ")]);
  }
  return out;
}

function strongest(record, by) {
  const values = record.turns.flatMap((turn) => pieces(valuesOf(turn, by), shownReply(turn).length).map((piece) => Math.abs(piece[2] || 0)));
  return values.reduce((most, value) => Math.max(most, value), 0);
}

function shade(value, most) {
  const strength = most && value ? 0.08 + 0.4 * Math.min(1, Math.abs(value) / most) : 0;
  return "color-mix(in srgb, var(" + (value >= 0 ? "--credit" : "--loss") + ") " + (100 * strength).toFixed(1) + "%, transparent)";
}

// A reply with its credit. Arrow keys and clicks go from piece to piece, whose numbers are said below it.
function replyNode(turn, k, by, most) {
  const text = shownReply(turn), cuts = pieces(valuesOf(turn, by), text.length);
  const said = el("div", { class: "said", role: "status" });
  const draw = (from, to) => parts(text.slice(from, to), (start, end) => {
    const a = from + start, b = from + end, out = document.createDocumentFragment();
    if (!cuts.length) out.append(text.slice(a, b));
    for (const [x, y, value, what] of cuts) {
      if (y <= a || x >= b) continue;
      const piece = el("span", { class: what ? "credit" : null, title: what }, text.slice(Math.max(x, a), Math.min(y, b)));
      if (value !== null) piece.style.backgroundColor = shade(by === "log-probability" ? Math.min(value, -1e-9) : value, most);
      out.append(piece);
    }
    return out;
  });
  const choose = (piece) => {
    box.querySelectorAll(".at").forEach((old) => old.classList.remove("at"));
    piece.classList.add("at");
    said.textContent = "“" + piece.textContent.trim().slice(0, 40) + "”: " + piece.title;
  };
  const box = el("div", {
    class: "text reply", dir: "auto", tabindex: "0", role: "group", "aria-label": "Reply of turn " + (k + 1),
    click: (event) => { if (event.target.matches(".credit")) choose(event.target); },
    keydown: (event) => {
      const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key], all = [...box.querySelectorAll(".credit")];
      if (!way || !all.length) return;
      event.preventDefault();
      const now = all.findIndex((piece) => piece.classList.contains("at"));
      choose(all[Math.max(0, Math.min(all.length - 1, now + way))]);
    },
  });
  const thought = /^\s*<think>[\s\S]*?(<\/think>|$)/.exec(text) || /^[\s\S]*?<\/think>/.exec(text);
  const inside = thought && thought[0].replace(/<\/?think>/g, "").trim() ? thought[0].length : 0;
  if (inside) box.append(el("details", { class: "thought" }, el("summary", {}, "thought, " + count(inside, "character")), draw(0, inside)));
  box.append(...present(draw(inside, text.length)));
  return [box, cuts.length ? said : null];
}

function colourTool(record, most, redraw) {
  const names = colours(record), by = colourOf(record);
  const select = el("select", { "aria-label": "Colour replies by" },
    names.map((name) => el("option", { value: name, selected: name === by }, name)));
  select.addEventListener("change", () => { remember({ colour: select.value }); redraw(); });
  const ends = by === "log-probability" ? [-most] : [-most, most];
  const legend = most ? ends.map((value) => {
    const swatch = el("span", { class: "swatch" });
    swatch.style.backgroundColor = shade(value, most);
    return [swatch, signed(value)];
  }) : null;
  return el("span", { class: "legend" }, "colour", select, legend);
}

function creditSum(turn, method) {
  const own = turn.credits.filter((credit) => credit.method === method && credit.value !== null);
  return own.length ? sum(own.map((credit) => credit.value)) : null;
}

// What turns were paid, as named amounts: [name, how it is written, its value at each turn].
function amounts(record) {
  const turns = record.turns, named = (what) => [...new Set(turns.flatMap((turn) => [...turn[what].keys()]))];
  const isReplaced = (name) => name === "outcome" && record.replaces_outcome, components = named("rewards");
  const component = (name) => turns.map((turn) => turn.rewards.get(name));
  let total = 0;
  return [
    ...components.filter((name) => !isReplaced(name)).map((name) => [name, signed, component(name)]),
    ...methodsOf(record).map((name) => [name, signed, turns.map((turn) => creditSum(turn, name))]),
    ...named("signals").map((name) => [name + " signal", number, turns.map((turn) => turn.signals.get(name))]),
    ["reward", signed, turns.map((turn) => turn.reward)],
    ["return so far", signed, turns.map((turn) => (total += turn.reward || 0))],
    ...components.filter(isReplaced).map((name) => [name + ", replaced", signed, component(name)]),
  ];
}

function payTable(record) {
  const lines = amounts(record);
  return scrolling("Rewards of every turn", el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "turn"), lines.map(([name]) => el("th", { class: "n" }, name)))),
    el("tbody", {}, record.turns.map((_, k) => el("tr", {}, el("th", { scope: "row" }, k + 1),
      lines.map(([, form, values]) => el("td", { class: "n" }, form(values[k]))))))));
}

// The amounts of turn k that are not 0.
function payLine(lines, k) {
  const shown = lines.filter(([, , values]) => values[k]);
  return el("dl", { class: "facts" }, shown.map(([name, form, values]) => el("div", {}, el("dt", {}, name), el("dd", {}, form(values[k])))));
}
