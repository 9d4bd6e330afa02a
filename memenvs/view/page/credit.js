// Credit: of turns, spans and tokens, as colour and in numbers.

function colours(record) {
  const names = Object.keys(record.credits || {}), tokens = record.tokens || [];
  return [
    ...(names.length ? ["credit"] : []),
    ...(names.length > 1 ? names.map((name) => "credit of " + name) : []),
    ...(tokens.some((own) => own.advantages && own.spans) ? ["advantage"] : []),
    ...(tokens.some((own) => own.spans) ? ["log-probability"] : []),
    "nothing",
  ];
}

function colourOf(record) {
  const found = colours(record);
  return found.includes(place.colour) ? place.colour : found[0];
}

const unitsOf = new WeakMap();
function units(record, turn) {
  if (!unitsOf.has(record)) unitsOf.set(record, []);
  const known = unitsOf.get(record);
  return (known[turn] = known[turn] || placesIn(record.replies[turn]));
}

// [start, end, value, what] of the characters of a turn's reply.
function valuesOf(record, turn, by) {
  const at = units(record, turn), out = [];
  if (by.startsWith("credit")) {
    const only = by.slice("credit of ".length);
    for (const [name, some] of Object.entries(record.credits)) {
      if (only && name !== only) continue;
      for (const credit of some.filter((one) => one.turn === turn)) {
        const [a, b] = credit.span || [0, Infinity];
        const why = (credit.reason ? " (" + credit.reason + ")" : "") + (credit.advantage ? " (advantage)" : "");
        out.push([at(a), b === Infinity ? record.replies[turn].length : at(b), credit.value, name + " " + signed(credit.value) + why]);
      }
    }
    return out;
  }
  const own = (record.tokens || [])[turn];
  if (by === "nothing" || !own || !own.spans) return out;
  own.spans.forEach(([a, b], t) => {
    const value = by === "advantage" ? (own.advantages || [])[t] : own.logprobs[t];
    if (b <= a || value === undefined) return;
    const advantage = own.advantages ? "advantage " + signed(own.advantages[t]) + ", " : "";
    out.push([at(a), at(b), value, advantage + "log-probability " + number(own.logprobs[t]) + " nats"]);
  });
  return out;
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
  let most = 0;
  record.replies.forEach((reply, turn) => {
    for (const [, , value] of pieces(valuesOf(record, turn, by), reply.length)) most = Math.max(most, Math.abs(value || 0));
  });
  return most;
}

function shade(value, most) {
  const strength = most && value ? 0.08 + 0.4 * Math.min(1, Math.abs(value) / most) : 0;
  return "rgba(var(" + (value >= 0 ? "--good" : "--bad") + ")," + strength.toFixed(3) + ")";
}

// A reply with its credit. Arrow keys and clicks go from piece to piece, whose numbers are said below it.
function replyNode(record, turn, by, most) {
  const text = record.replies[turn], cuts = pieces(valuesOf(record, turn, by), text.length);
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
    class: "text reply", dir: "auto", tabindex: "0", role: "group", "aria-label": "Reply of turn " + (turn + 1),
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
  if (!text) box.append("(an empty reply)");
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

// What a turn was paid, as named amounts.
function creditSum(record, name, turn) {
  const own = record.credits[name].filter((credit) => credit.turn === turn && credit.value !== null);
  return own.length ? sum(own.map((credit) => credit.value)) : null;
}

function amounts(record) {
  const components = [...new Set((record.turns || []).flatMap((turn) => Object.keys(turn.rewards || {})))];
  const isReplaced = (name) => name === "outcome" && record.replaces_outcome;
  let total = 0;
  const returns = record.turn_rewards.map((value) => (total += value || 0));
  return [
    ...components.filter((name) => !isReplaced(name)).map((name) => [name, signed, (k) => record.turns[k] && record.turns[k].rewards[name]]),
    ...Object.keys(record.credits || {}).map((name) => [name, signed, (k) => creditSum(record, name, k)]),
    ...Object.keys(record.signals || {}).map((name) => ["signal of " + name, number, (k) => record.signals[name][k]]),
    ["reward", signed, (k) => record.turn_rewards[k]],
    ["return so far", signed, (k) => returns[k]],
    ...components.filter(isReplaced).map((name) => [name + ", replaced", signed, (k) => record.turns[k] && record.turns[k].rewards[name]]),
  ];
}

function payTable(record) {
  const lines = amounts(record);
  return scrolling("Rewards of every turn", el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "turn"), lines.map(([name]) => el("th", { class: "n" }, name)))),
    el("tbody", {}, record.replies.map((_, k) => el("tr", {}, el("th", { scope: "row" }, k + 1),
      lines.map(([, form, value]) => el("td", { class: "n" }, form(value(k)))))))));
}

function payLine(record, k) {
  const shown = amounts(record).filter(([, , value]) => value(k) !== null && value(k) !== undefined && value(k) !== 0);
  return el("dl", { class: "facts" }, shown.map(([name, form, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, form(value(k))))));
}
