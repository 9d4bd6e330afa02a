// Episodes of one task side by side: a group of a training step, or the same task in other runs.

function meanAdvantage(record, k) { return k < record.turns.length ? mean(record.turns[k].advantages) : null; }

function sideBySide(i) {
  const isGroup = place.view === "g", all = isGroup ? groupOf(i) : [i, ...sameTask(i)], members = all.slice(0, 64);
  where.replaceChildren(link({ view: "" }, "episodes"), " › ", link({ view: "e", at: i }, i), isGroup ? " › group" : " › other runs");
  keys.textContent = isGroup ? "n p group · Esc table" : "Esc table";
  Promise.all(members.map(body)).then((records) => {
    if (place.at !== i) return;
    const first = records[0], by = colourOf(first), most = Math.max(...records.map((record) => strongest(record, by)));
    const returns = records.map((record) => sum(record.turn_rewards)), middle = mean(returns), spread = deviation(returns);
    const turns = Math.max(...records.map((record) => record.turns.length)), each = [...Array(turns).keys()];
    const name = (m) => (isGroup ? "episode " + members[m] : runOf(members[m]));
    const line = (label, value) => el("tr", {}, el("th", { scope: "row" }, label), records.map((record, m) => el("td", { class: "side-value" }, value(record, m))));
    const learned = records.some((record) => each.some((k) => meanAdvantage(record, k) !== null));
    const lines = [
      line("answer", (_, m) => el("div", { dir: "auto" }, cell(members[m], "answer") || "")),
      line(score(), (_, m) => scoreNode(cell(members[m], score()))),
      line("return", (_, m) => number(returns[m])),
      isGroup ? line("return − mean", (_, m) => signed(returns[m] - middle)) : null,
      isGroup ? line("(return − mean) / standard deviation", (_, m) => (spread > 1e-12 ? signed((returns[m] - middle) / spread) : "0")) : null,
      line("end", (record) => record.end),
      learned ? each.map((k) => line("learner's advantage, turn " + (k + 1), (record) => (k < record.turns.length ? signed(meanAdvantage(record, k)) : ""))) : null,
    ];
    const head = el("tr", {}, el("td", {}), members.map((k, m) => el("th", {}, link({ view: "e", at: k }, name(m)))));
    const memories = records.map(() => "");
    const rounds = each.map((k) => [el("h3", {}, "Turn " + (k + 1)), el("div", { class: "side", tabindex: "0", role: "region", "aria-label": "Turn " + (k + 1) }, records.map((record, m) => {
      const turn = record.turns[k], was = memories[m];
      if (turn && turn.memory !== null) memories[m] = turn.memory;
      return el("section", { class: "card", "aria-label": "Turn " + (k + 1) + " of " + name(m) },
        el("div", { class: "quiet" }, name(m) + (turn ? ", reward " + signed(turn.reward) : "")),
        turn ? [replyNode(turn, k, by, most), turn.memory || (turn.memory !== null && was) ? memoryNode(was, turn.memory, false) : null] : el("p", { class: "quiet" }, "had ended"));
    }))]);
    const title = isGroup ? "Group of " + all.length : "The same task in " + all.length + " runs";
    show(title, el("div", { class: "tools" }, colourTool(first, most, () => sideBySide(i))),
      el("div", { class: "card" }, el("h2", {}, title + (first.task ? " · " + first.task : "")),
        first.question ? labelled("question", isBoards(first) ? withBoards(first.question) : plain(first.question)) : null,
        answersOf(first) ? labelled("target", answersOf(first)) : null,
        scrolling(title, el("table", {}, el("thead", {}, head), el("tbody", {}, present(lines))))), rounds);
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }).catch(trouble);
}

// The first episode of the next group, or of the one before.
function otherGroup(i, way) {
  const at = order.indexOf(i), rest = way > 0 ? order.slice(at + 1) : order.slice(0, Math.max(at, 0)).reverse();
  const next = rest.find((k) => index.groups[k] !== index.groups[i]);
  if (next !== undefined) visit({ view: "g", at: next });
}
