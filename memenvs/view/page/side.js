// Episodes of one task side by side: a group of a training step, or the same task in other runs, those chosen for a
// comparison first.

function meanAdvantage(record, k) { return k < record.turns.length ? mean(record.turns[k].advantages) : null; }

function sideBySide(i) {
  const isGroup = place.view === "g", chosen = chosenRuns(), rank = (k) => (chosen.indexOf(index.run[k]) + 1 || Infinity);
  const all = isGroup ? groupOf(i) : [i, ...sameTask(i)].sort((x, y) => (rank(x) === rank(y) ? 0 : rank(x) - rank(y))), members = all.slice(0, 64);
  where.replaceChildren(link({ view: "" }, "episodes"), " › ", link({ view: "e", at: i }, i), isGroup ? " › group" : " › other runs");
  keys.textContent = isGroup ? "n p group · Esc table" : "Esc table";
  Promise.all(members.map(body)).then((records) => {
    if (place.at !== i) return;
    const first = records[0], by = colourOf(first), most = Math.max(...records.map((record) => strongest(record, by)));
    const returns = records.map((record) => sum(record.turn_rewards)), middle = mean(returns), spread = deviation(returns);
    const turns = Math.max(...records.map((record) => record.turns.length)), each = [...Array(turns).keys()];
    const samples = (k) => rows.filter((_, other) => index.tasks[other] === index.tasks[k] && index.run[other] === index.run[k]).length;
    const name = (m) => (isGroup ? "episode " + members[m] : runOf(members[m]) + (samples(members[m]) === 1 ? "" : ", sample " + ((cell(members[m], "member") || 0) + 1)));
    const line = (label, value) => el("tr", {}, el("th", { scope: "row" }, label), records.map((record, m) => el("td", { class: "side-value" }, value(record, m))));
    const learned = records.some((record) => each.some((k) => meanAdvantage(record, k) !== null));
    const lines = [
      line("answer", (_, m) => el("div", { dir: "auto" }, answerOf(members[m]))),
      line(score(), (_, m) => scoreNode(cell(members[m], score()))),
      line("return", (_, m) => number(returns[m])),
      isGroup ? line("return - mean", (_, m) => signed(returns[m] - middle)) : null,
      isGroup ? line("(return - mean) / standard deviation", (_, m) => (spread > 1e-12 ? signed((returns[m] - middle) / spread) : "0")) : null,
      line("end", (record) => record.end),
      learned ? each.map((k) => line("learner's advantage, turn " + (k + 1), (record) => (k < record.turns.length ? signed(meanAdvantage(record, k)) : ""))) : null,
    ];
    const head = el("tr", {}, el("td", {}), members.map((k, m) => el("th", {}, link({ view: "e", at: k }, name(m)))));
    const memories = records.map(() => ""), steps = records.map((record, m) => progress(members[m], record));
    const card = (record, m, k) => {
      const turn = record.turns[k], was = memories[m];
      if (!turn) return el("section", { class: "card quiet", "aria-label": "Turn " + (k + 1) + " of " + name(m), "data-name": name(m) }, "had ended");
      if (turn.memory !== null) memories[m] = turn.memory;
      const { kept, fate } = steps[m][k], told = [kept === null ? "" : "keeps " + number(100 * kept, 2) + "%", "reward " + signed(turn.reward)];
      return el("section", { class: "card" + (fate === "lost" ? " losing" : ""), "aria-label": "Turn " + (k + 1) + " of " + name(m), "data-name": name(m) },
        el("div", { class: "quiet tags" }, tags(steps[m][k]), el("span", {}, told.filter(Boolean).join(" · "))), evidenceNode(record, turn),
        replyNode(turn, k, by, most), turn.memory || (turn.memory !== null && was) ? memoryNode(was, turn.memory, false) : null);
    };
    const rounds = el("div", { class: "side", tabindex: "0", role: "region", "aria-label": "Turns side by side" },
      members.map((k, m) => el("div", { class: "name" }, link({ view: "e", at: k }, name(m)))),
      each.map((k) => [el("h3", {}, "Turn " + (k + 1)), records.map((record, m) => card(record, m, k))]));
    rounds.style.gridTemplateColumns = "repeat(" + members.length + ", minmax(var(--column), 1fr))";
    const title = isGroup ? "Group (" + all.length + ")" : "The same task in " + count(new Set(all.map((k) => index.run[k])).size, "run");
    show(title, el("div", { class: "tools" }, colourTool(first, most, () => sideBySide(i))),
      el("div", { class: "card" }, el("h2", {}, title + (first.task ? " · " + first.task : "")),
        first.question ? labelled("question", isBoards(first) ? withBoards(first.question) : plain(first.question)) : null,
        answersOf(first) ? labelled("target", answersOf(first)) : null,
        scrolling(title, el("table", {}, el("thead", {}, head), el("tbody", {}, present(lines))))), rounds);
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }).catch(trouble);
}

// The evidence that a turn read, folded: its sentences in the chunk, or the passages that came back.
function evidenceNode(record, turn) {
  const text = turn.prompt !== null && turn.chunk ? chunkOf(turn) : turn.feedback;
  const spans = text ? evidenceIn(record, text, turn.evidence) : [];
  return spans.length ? el("details", { class: "evidence" }, el("summary", {}, "evidence"),
    el("div", { class: "text", dir: "auto" }, spans.map(([a, b], n) => [n ? " … " : "", el("mark", {}, text.slice(a, b))]))) : null;
}

// The first episode of the next group, or of the one before.
function otherGroup(i, way) {
  const at = order.indexOf(i), rest = way > 0 ? order.slice(at + 1) : order.slice(0, Math.max(at, 0)).reverse();
  const next = rest.find((k) => index.groups[k] !== index.groups[i]);
  if (next !== undefined) visit({ view: "g", at: next });
}
