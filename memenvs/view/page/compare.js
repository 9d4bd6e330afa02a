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

// For each task of both runs: [an episode of the run, the baseline's mean score, the run's].
function pairsOf(base, run) {
  const name = score(), tasks = new Map();
  rows.forEach((_, i) => {
    const value = cell(i, name), r = index.run[i];
    if ((r !== base && r !== run) || typeof value !== "number" || cell(i, "end") === "failed") return;
    if (!tasks.has(index.tasks[i])) tasks.set(index.tasks[i], { at: null, [base]: [], [run]: [] });
    const task = tasks.get(index.tasks[i]);
    task[r].push(value);
    if (r === run && task.at === null) task.at = i;
  });
  return [...tasks.values()].filter((task) => task[base].length && task[run].length).map((task) => [task.at, mean(task[base]), mean(task[run])]);
}

// Sentences on the settings besides the policy in which a run differs from the baseline.
function otherSettings(base, run) {
  const [was, now] = [settingsOf(base), settingsOf(run)], matched = /^(env|env_args\..*|memory mode|n_tasks|data\..*|methods|reward|scorer|seed|memenvs)$/;
  const said = (value) => (value === undefined ? "not set" : /^[0-9a-f]{64}$/.test(value) ? value.slice(0, 8) + "…" : number(value)); // a hash
  const names = [...new Set([...was.keys(), ...now.keys()])].filter((name) => matched.test(name) && was.get(name) !== now.get(name));
  return names.filter((name) => name !== "env_args.memory_mode").map((name) => name + " is " + said(now.get(name)) + " (" + said(was.get(name)) + " in " + index.runs[base] + ")");
}

function worseTasks(base, run) {
  const worse = pairsOf(base, run).filter(([, before, after]) => after < before - 1e-9).sort((x, y) => x[2] - x[1] - (y[2] - y[1]));
  if (!worse.length) return el("p", { class: "quiet" }, "No task has a lower " + score() + " in " + index.runs[run] + ".");
  const line = ([i, before, after]) => el("tr", {},
    el("td", { class: "question", dir: "auto" }, link({ view: "t", at: i }, cell(i, "question") || cell(i, "task") || "episode " + i)),
    el("td", { class: "n" }, number(before)), el("td", { class: "n" }, number(after)));
  return el("details", { class: "worse", open: worse.length <= 8 }, el("summary", {}, count(worse.length, "task") + " with a lower " + score() + " in " + index.runs[run]),
    scrolling("Tasks that got worse in " + index.runs[run], el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "task"), el("th", { class: "n" }, index.runs[base]), el("th", { class: "n" }, index.runs[run]))),
      el("tbody", {}, worse.slice(0, 200).map(line)))));
}

function comparison(redraw) {
  const chosen = chosenRuns(), [base, ...others] = chosen;
  if (index.runs.length < 2 || !chosen.length) return null;
  if (!others.length) return el("p", { class: "quiet" }, "Tick another run to compare it with " + index.runs[base] + ".");
  const select = el("select", { "aria-label": "Baseline" }, [...chosen].sort((x, y) => x - y).map((r) => el("option", { value: r, selected: r === base }, index.runs[r])));
  select.addEventListener("change", () => { remember({ compare: [select.value, ...chosen.filter((r) => r !== Number(select.value))].join(",") }); redraw(); });
  const first = (x) => (x.metric === score() ? 0 : 1);
  const table = others.flatMap((run) => differencesOf(base, run).sort((x, y) => first(x) - first(y)).map((row, n) => el("tr", {},
    el("th", { scope: "row" }, n ? "" : index.runs[run]), el("td", {}, row.metric), el("td", { class: "n" }, decimals(row.baseline)), el("td", { class: "n" }, decimals(row.mean)),
    el("td", { class: "n" }, el("b", {}, decimals(row.difference[0], "+")), el("span", { class: "quiet" }, " " + span(...row.difference.slice(1)))),
    el("td", { class: "n" }, [row.wins, row.ties, row.losses].join("/")), el("td", { class: "n" }, row.tasks))));
  const heads = ["run", "metric", "baseline", "mean", "difference, 95% interval", "win/tie/loss", "tasks"];
  const unknown = others.filter((run) => !differencesOf(base, run).length), more = others.map((run) => [run, otherSettings(base, run)]).filter(([, told]) => told.length);
  return el("section", { class: "card compared", "aria-label": "Comparison" },
    el("div", { class: "tools" }, el("h2", {}, "Differences from"), select, el("button", { click: () => { remember({ compare: "" }); redraw(); } }, "clear")),
    table.length ? scrolling("Differences", el("table", {}, el("thead", {}, el("tr", {}, heads.map((head, h) => el("th", { class: h > 1 ? "n" : null }, head)))), el("tbody", {}, table))) : null,
    unknown.map((run) => el("p", {}, index.runs[run] + " is not compared here: it has no task in common with " + index.runs[base] + ", one of them is a training run, or there are too many runs; see `memenvs evaluate compare`.")),
    more.map(([run, told]) => el("p", { class: "failure" }, index.runs[run] + " differs in more than its policy: " + told.join("; ") + ".")),
    others.filter((run) => !unknown.includes(run)).map((run) => worseTasks(base, run)));
}
