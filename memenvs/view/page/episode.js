// An episode: what was asked, expected, answered and scored; a strip of its turns; the turns.

function neighbours(i) {
  const at = order.indexOf(i);
  return at < 0 ? [i - 1, i + 1] : [order[at - 1], order[at + 1]];
}
function groupOf(i) { return rows.map((_, k) => k).filter((k) => index.groups[k] === index.groups[i]); }
function sameTask(i) {
  const own = index.tasks[i];
  return rows.map((_, k) => k).filter((k) => index.tasks[k] === own && index.run[k] !== index.run[i]);
}
function go(i) { if (i >= 0 && i < rows.length) visit({ view: place.view || "e", at: i }); }
function nextFailure(i) {
  const next = order.slice(order.indexOf(i) + 1).find(failed);
  if (next !== undefined) visit({ view: "e", at: next });
}

function fact(name, value) {
  const empty = value === null || value === undefined || value === "";
  return empty ? null : el("div", {}, el("dt", {}, name), el("dd", { dir: "auto" }, number(value)));
}

function answersOf(record) { return record.answers.map((some) => [].concat(some).join(" or ")).join("; "); }

function headline(i, record) {
  const question = isBoards(record) ? withoutBoards(record.question) : record.question;
  const box = (label, node, kind) => node ? el("div", { class: "box " + (kind || "") }, el("div", { class: "label" }, label),
    el("div", { class: "text", dir: "auto" }, node)) : null;
  return el("div", { class: "headline-boxes" },
    box("question", question ? plain(question, 2000) : null, "wide"),
    box("target", plain(answersOf(record) || record.target, 400)),
    box("answer", plain(answerOf(i), 400)),
    box("score", [scoreNode(cell(i, score())), el("span", { class: "quiet" }, " " + score())]),
    box("return", signed(sum(record.turn_rewards))));
}

function details(i, record) {
  const facts = [
    fact("environment", record.env), fact("task", record.task), fact("run", index.runs.length > 1 ? runOf(i) : ""), fact("step", record.step), fact("phase", record.phase),
    fact("group", cell(i, "group")), fact("member", cell(i, "member")), fact("end", record.end),
    fact("seed", cell(i, "group") !== null ? null : record.seed), fact("length penalty", record.length_penalty),
    ...Object.entries(record.metrics || {}).filter(([name]) => name !== "return").map(([name, value]) => fact(name, value)),
  ];
  return [
    el("details", {}, el("summary", {}, "metrics and settings"), el("dl", { class: "facts" }, facts)),
    record.turns.length > 1 ? el("details", {}, el("summary", {}, "rewards of every turn"), payTable(record)) : null,
  ];
}

function otherRuns(i) {
  const others = sameTask(i);
  if (!others.length) return null;
  const name = score(), heads = ["answer", name, "return", "turns"], line = (k) => el("tr", {},
    el("th", { scope: "row" }, link({ view: "e", at: k }, runOf(k))),
    [answerOf(k), scoreNode(cell(k, name)), signed(cell(k, "return")), number(cell(k, "turns"))].map((value, h) => el("td", { class: h ? "n" : "answer", dir: "auto", "data-name": heads[h] }, el("div", {}, value))));
  return el("details", { open: others.length <= 8 }, el("summary", {}, "the same task in other runs: " + others.length),
    el("p", {}, link({ view: "t", at: i }, "compare them side by side")),
    scrolling("The same task in other runs", el("table", { class: "stacked" },
      el("thead", {}, el("tr", {}, ["run", ...heads].map((head, h) => el("th", { class: h > 1 ? "n" : null }, head)))),
      el("tbody", {}, others.slice(0, 64).map(line)))));
}

// The amount that the strip shows: the reader's choice, otherwise the reward; where every reward is 0 a signal, the
// first that differs between turns.
function stripAmount(record, lines) {
  const chosen = lines.find(([name]) => name === place.strip), isSignal = ([name]) => record.turns.some((turn) => [...turn.signals.keys()].some((own) => name === own + " signal"));
  const reward = lines.find(([name]) => name === "reward"), signals = lines.filter(isSignal);
  const differs = ([, , values]) => new Set(values.filter((value) => typeof value === "number")).size > 1;
  return chosen || (!reward[2].some(Boolean) && (signals.find(differs) || signals[0])) || reward;
}

// The turn at which values fall furthest, if it is by half of their range or more; otherwise -1.
function largestFall(values) {
  const known = values.map((value, k) => [k, value]).filter(([, value]) => typeof value === "number"), all = known.map(([, value]) => value);
  let least = (Math.max(...all) - Math.min(...all)) / 2, at = -1;
  known.slice(1).forEach(([k, value], before) => {
    const fall = known[before][1] - value;
    if (fall > 0 && fall >= least) { at = k; least = fall; }
  });
  return at;
}

// A button a turn: whether it read evidence, how much of it the memory keeps, and an amount: its reward or a signal.
// ▼ marks the turns that lose an answer; where none does, the turn at which the signal falls furthest.
function strip(i, record, steps, lines) {
  const [name, form, values] = stripAmount(record, lines), most = Math.max(...values.map((value) => Math.abs(value || 0)), 0);
  const loses = steps.some((step) => step.fate === "lost"), fall = loses || !name.endsWith(" signal") ? -1 : largestFall(values);
  const mark = (k) => steps[k].fate === "lost" || k === fall;
  const keeps = steps.some((step) => step.kept !== null), reads = steps.some((step) => step.seen);
  const buttons = steps.map((step, k) => {
    const said = ["turn " + (k + 1), step.seen ? "reads evidence" : "", step.kept === null ? "" : "keeps " + number(100 * step.kept, 2) + "% of it",
      step.fate, name + " " + form(values[k]), k === fall ? "largest fall" : ""].filter(Boolean).join(", ");
    const bar = el("span", { class: "bar" }, el("span", { class: "level" + (["found", "kept"].includes(step.fate) ? " whole" : "") }));
    bar.firstChild.style.height = 100 * (step.kept || 0) + "%";
    const amount = el("span", { class: "reward" }, form(typeof values[k] === "number" ? Number(values[k].toPrecision(2)) : null));
    amount.style.backgroundColor = shade(values[k] || 0, most);
    return el("button", { class: "step" + (mark(k) ? " losing" : ""), title: said, click: () => current(k, true) }, el("span", { class: "unseen" }, said),
      el("span", { class: "shown", "aria-hidden": "true" },
        el("span", {}, k + 1, mark(k) ? el("span", { class: "lost" }, " ▼") : null), reads ? el("span", { class: step.seen ? "seen" : null }, step.seen ? "●" : "·") : null, keeps ? bar : null, amount));
  });
  const select = el("select", { "aria-label": "Amount of each turn" }, lines.map(([own]) => el("option", { value: own, selected: own === name }, own)));
  select.addEventListener("change", () => {
    remember({ strip: select.value });
    main.querySelector(".strip").replaceWith(strip(i, record, steps, lines));
    current(Number(place.turn || 0), false);
    main.querySelector(".strip select").focus({ preventScroll: true });
  });
  const told = [reads ? "● the turn read evidence" : "", keeps ? "bar: share of the evidence in memory, green where an accepted answer was found or kept" : "", loses ? "▼ lost an answer that it read or had" : fall < 0 ? "" : "▼ largest fall"];
  return el("nav", { class: "strip", "aria-label": "Turns" }, el("div", { class: "steps", tabindex: "0" }, buttons),
    el("div", { class: "amount" }, el("label", {}, "number ", select), el("span", { class: "quiet" }, told.filter(Boolean).join(" · "))));
}

function turnCard(record, k, step, before, by, most, paid) {
  const turn = record.turns[k], { reply, memory } = turn, isMemory = memory !== null && memory.trim() === reply.trim();
  const told = ["reply", turn.tokens ? count(turn.tokens, "token") : "", turn.end].filter(Boolean).join(", ");
  const wrote = [
    el("div", { class: "label" }, told), replyNode(turn, k, by, most),
    memory || (memory !== null && before) ? memoryNode(before, memory, memory !== before && (!isMemory || Boolean(before))) : null,
    turn.feedback.trim() ? labelled("feedback", feedbackNodes(record, turn.feedback.trim())) : null,
  ];
  const read = readNode(record, turn, k === 0);
  return el("section", { class: "card turn" + (step.fate === "lost" ? " losing" : ""), id: "turn-" + k, "aria-label": "Turn " + (k + 1) },
    el("div", { class: "top" }, el("h3", {}, "Turn " + (k + 1)), el("span", { class: "tags" }, tags(step)), payLine(paid, k)),
    el("div", { class: read ? "halves" : "" }, read ? el("div", {}, read) : null, el("div", {}, wrote)));
}

function episode(i) {
  const [before, after] = neighbours(i), group = groupOf(i);
  where.replaceChildren(link({ view: "" }, "episodes"), " › " + (index.runs.length > 1 ? runOf(i) + " › " : "") + i);
  keys.textContent = "n p episode · j k turn · f failure · g group · o unfold · / find · Esc table";
  body(i).then((record) => {
    if (place.view !== "e" || place.at !== i) return;
    const by = colourOf(record), most = strongest(record, by);
    const redraw = () => { const at = window.scrollY; episode(i); requestAnimationFrame(() => window.scrollTo(0, at)); };
    const paid = amounts(record), steps = progress(i, record);
    let memory = "";
    const cards = record.turns.map((turn, k) => {
      const card = turnCard(record, k, steps[k], memory, by, most, paid);
      memory = turn.memory === null ? memory : turn.memory;
      return card;
    });
    const finding = findTool(), blob = () => new Blob([JSON.stringify(record.line, null, 1)], { type: "application/json" });
    const save = () => el("a", { href: URL.createObjectURL(blob()), download: "episode-" + i + ".json" }).click();
    const tools = el("div", { class: "tools" },
      el("button", { click: () => go(before), disabled: !(before >= 0), "aria-label": "Previous episode" }, "← previous"),
      el("button", { click: () => go(after), disabled: !(after < rows.length), "aria-label": "Next episode" }, "next →"),
      el("button", { click: () => nextFailure(i) }, "next failure"),
      group.length > 1 ? link({ view: "g", at: i }, "group (" + group.length + ")") : null, colourTool(record, most, redraw),
      el("button", { click: unfold }, "unfold"), el("button", { click: save, "aria-label": "Save the episode as JSON" }, "JSON"), finding.node);
    show("Episode " + i + (record.task ? ", " + record.task : ""), tools,
      el("section", { class: "card", "aria-label": "Episode" }, el("h2", {}, "Episode " + i + (record.task ? " · " + record.task : "")), headline(i, record),
        record.error ? el("p", { class: "failure" }, record.error) : null, details(i, record), otherRuns(i)),
      cards.length ? [strip(i, record, steps, paid), cards] : el("p", {}, "No turn was played."));
    main.focus({ preventScroll: true });
    finding.start();
    if (place.turn) current(Number(place.turn), true);
    else { window.scrollTo(0, 0); current(0, false); goToFound(); }
  }).catch(trouble);
}

function trouble(error) { show("Error", el("p", { class: "failure", role: "alert" }, String(error.message || error))); }

function current(k, scroll) {
  const cards = main.querySelectorAll(".turn"), steps = main.querySelectorAll(".step");
  if (!cards.length) return;
  const at = Math.max(0, Math.min(k, cards.length - 1));
  if (scroll || place.turn) remember({ turn: String(at) });
  cards.forEach((card, n) => card.classList.toggle("current", n === at));
  steps.forEach((step, n) => {
    if (n === at) step.setAttribute("aria-current", "step");
    else step.removeAttribute("aria-current");
  });
  if (scroll) cards[at].scrollIntoView({ block: "start" });
  const strip = main.querySelector(".steps");
  if (steps[at]) strip.scrollLeft = steps[at].offsetLeft - strip.clientWidth / 2;
}
