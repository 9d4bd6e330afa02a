// Runs compared with a baseline, task by task. The address keeps the numbers of the chosen runs, the baseline first.

function chosenRuns() {
  return [...new Set(place.compare.split(",").filter(Boolean).map(Number))].filter((r) => r in index.runs);
}

function chooseRun(r, isChosen) {
  return [...chosenRuns().filter((other) => other !== r), ...(isChosen ? [r] : [])].join(",");
}

// The differences of a run from a baseline; they are kept for one order of the two.
function differencesOf(base, run) {
  return index.differences.flatMap((row) => {
    if (row.base === base && row.run === run) return [row];
    if (row.base !== run || row.run !== base) return [];
    const [middle, low, high] = row.difference;
    return [{ ...row, baseline: row.mean, mean: row.baseline, difference: [-middle, -high, -low], wins: row.losses, losses: row.wins }];
  });
}

// Sentences on the settings besides the policy in which a run differs from the baseline.
function otherSettings(base, run) {
  const [was, now] = [settingsOf(base), settingsOf(run)], matched = /^(env|env_args\..*|memory mode|n_tasks|data\..*|methods|reward|scorer|seed|memenvs)$/;
  const said = (value) => (value === undefined ? "not set" : /^[0-9a-f]{64}$/.test(value) ? value.slice(0, 8) + "…" : number(value)); // a hash
  const names = [...new Set([...was.keys(), ...now.keys()])].filter((name) => matched.test(name) && was.get(name) !== now.get(name));
  return names.filter((name) => name !== "env_args.memory_mode").map((name) => name + " is " + said(now.get(name)) + " (" + said(was.get(name)) + " in " + index.runs[base] + ")");
}

// A row a task with an episode under the filter, those first that got worst: what each run answered, and its score.
function taskTable(chosen) {
  const name = score(), tasks = new Map(), [base, ...others] = chosen;
  order.filter((i) => chosen.includes(index.run[i])).forEach((i) => {
    if (!tasks.has(index.tasks[i])) tasks.set(index.tasks[i], { at: i, by: new Map(chosen.map((r) => [r, []])) });
    tasks.get(index.tasks[i]).by.get(index.run[i]).push(i);
  });
  const average = (some) => mean(some.filter((i) => cell(i, "end") !== "failed").map((i) => cell(i, name)).filter((value) => typeof value === "number"));
  const lines = [...tasks.values()].map(({ at, by }) => {
    const values = new Map([...by].map(([r, some]) => [r, average(some)])), known = others.filter((r) => values.get(r) !== null && values.get(base) !== null);
    return { at, by, values, known, change: (r) => (known.includes(r) ? values.get(r) - values.get(base) : 0) };
  });
  const worst = ({ known, change }) => (known.length ? Math.min(...known.map(change)) : Infinity);
  const worse = lines.filter((line) => worst(line) < -1e-9).length;
  const answer = ({ by, values, change }, r) => {
    const some = by.get(r), moved = change(r) < -1e-9 ? ["failure", "▼ "] : change(r) > 1e-9 ? ["success", "▲ "] : ["", ""];
    return el("td", { class: "answer", dir: "auto", "data-name": index.runs[r] }, el("span", { class: moved[0] }, moved[1]), scoreNode(values.get(r)),
      el("div", {}, some.length === 1 ? answerOf(some[0]) : count(some.length, "sample")));
  };
  const body = lines.sort((x, y) => worst(x) - worst(y)).slice(0, 500).map((line) => el("tr", { class: worst(line) < -1e-9 ? "worse" : null },
    el("th", { scope: "row", class: "question", dir: "auto" }, link({ view: "t", at: line.at }, cell(line.at, "question") || cell(line.at, "task") || "episode " + line.at)),
    "target" in column ? el("td", { class: "target", dir: "auto", "data-name": "target" }, cell(line.at, "target") || "") : null, chosen.map((r) => answer(line, r))));
  return [el("h3", {}, count(lines.length, "task") + (worse ? ", " + worse + " with a lower " + name : "")),
    scrolling("Tasks", el("table", { class: "stacked" }, el("thead", {}, el("tr", {}, ["task", ...("target" in column ? ["target"] : []), ...chosen.map((r) => index.runs[r])].map((head) => el("th", {}, head)))),
      el("tbody", {}, body)))];
}

// The differences of a run as rows; metrics in which they are equal share one, as in `evaluate compare`.
function differenceRows(base, run, heads) {
  const merged = new Map(), first = (row) => (row.metric === score() ? 0 : 1);
  differencesOf(base, run).sort((x, y) => first(x) - first(y)).forEach(({ metric, ...row }) => {
    const key = JSON.stringify(row);
    merged.set(key, { ...row, metrics: [...(merged.has(key) ? merged.get(key).metrics : []), metric] });
  });
  return [...merged.values()].map(({ metrics, difference: [middle, ...ends], baseline, mean, wins, ties, losses, tasks }) => {
    const values = [[el("b", {}, decimals(middle, "+")), el("span", { class: "quiet" }, " " + span(...ends))], decimals(baseline), decimals(mean), [wins, ties, losses].join("/"), tasks];
    return el("tr", {}, el("th", { scope: "row" }, metrics.join(", ")), values.map((value, k) => el("td", { class: "n", "data-name": heads[k + 1] }, value)));
  });
}

// What each turn of the runs earned and did with the evidence; each number of failures that it cost opens the first.
function turnTable(chosen) {
  const names = chosen.map((r) => index.runs[r]), rows = index.turns.filter((row) => names.includes(row.run));
  if (!rows.length) return null;
  const fates = ["found", "kept", "lost", "wasted"].filter((fate) => rows.some((row) => row.fates[fate])), costs = rows.some((row) => row.costly.length);
  const heads = ["turn", "run", "credit, 95% interval", ...fates, ...(costs ? ["cost"] : [])];
  const body = rows.map(({ turn, last, run, credit: [middle, ...ends], fates: shares, costly }) => {
    const share = (fate) => (fate in shares ? Math.round(100 * shares[fate]) + "%" : "");
    const cost = costly.length ? link({ view: "e", at: costly[0], turn: String(turn - 1) }, costly.length) : "";
    const values = [[el("b", {}, decimals(middle)), el("span", { class: "quiet" }, " " + span(...ends))], ...fates.map(share), ...(costs ? [cost] : [])];
    return el("tr", {}, el("th", { scope: "row" }, turn === last ? turn : turn + " to " + last), el("td", { "data-name": "run" }, run),
      values.map((value, k) => el("td", { class: "n", "data-name": heads[k + 2] }, value)));
  });
  return [el("h3", {}, "Turn by turn"), scrolling("Turns", el("table", { class: "stacked turns" }, el("thead", {}, el("tr", {}, heads.map((head, h) => el("th", { class: h > 1 ? "n" : null }, head)))), el("tbody", {}, body)))];
}

function comparison(redraw) {
  const chosen = chosenRuns(), [base, ...others] = chosen;
  if (index.runs.length < 2 || !chosen.length) return null;
  if (!others.length) return el("p", { class: "quiet" }, "Tick another run to compare it with " + index.runs[base] + ".");
  const select = el("select", { "aria-label": "Baseline" }, [...chosen].sort((x, y) => x - y).map((r) => el("option", { value: r, selected: r === base }, index.runs[r])));
  select.addEventListener("change", () => { remember({ compare: [select.value, ...chosen.filter((r) => r !== Number(select.value))].join(",") }); redraw(); });
  const heads = ["metric", "difference, 95% interval", "baseline", "mean", "win/tie/loss", "tasks"];
  const table = (run) => {
    const lines = differenceRows(base, run, heads), told = otherSettings(base, run);
    return [el("h3", {}, index.runs[run]),
      lines.length ? scrolling("Differences of " + index.runs[run], el("table", { class: "stacked" }, el("thead", {}, el("tr", {}, heads.map((head, h) => el("th", { class: h ? "n" : null }, head)))), el("tbody", {}, lines)))
        : el("p", {}, index.runs[run] + " is not compared here: it has no task in common with " + index.runs[base] + ", one of them is a training run, or there are too many runs; see `memenvs evaluate compare`."),
      told.length ? el("p", { class: "failure" }, index.runs[run] + " differs in more than its policy: " + told.join("; ") + ".") : null];
  };
  return el("section", { class: "card compared", "aria-label": "Comparison" },
    el("div", { class: "tools" }, el("h2", {}, "Differences from"), select, el("button", { click: () => { remember({ compare: "" }); redraw(); } }, "clear")),
    others.map(table), turnTable(chosen), taskTable(chosen));
}
