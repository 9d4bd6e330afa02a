// The first page: a line a run, then a line an episode with question, target, answer and score.

const HIDDEN = ["run", "question", "target", "answer", "group", "number", "member", "task"];
let order = rows.map((_, i) => i);
let shown = 200;

// A filter is words, "phrases", and conditions such as success<1 or env=MemChunkQA-v0.
function conditions(query) {
  return (query.match(/(?:"[^"]*"?|[^\s"])+/g) || []).map((given) => {
    const word = given.replace(/"/g, "");
    const found = /^(.+?)(<=|>=|!=|<|>|=)(.+)$/.exec(word);
    const name = found && columns.find((one) => one.toLowerCase() === found[1].toLowerCase());
    return name ? [name, found[2], found[3].toLowerCase()] : [word.toLowerCase(), "", ""];
  });
}

function holds(i, [name, sign, value]) {
  if (!sign) return rows[i].some((own) => typeof own === "string" && own.toLowerCase().includes(name));
  const own = cell(i, name);
  if (!/^-?\d+(\.\d+)?$/.test(value)) return (String(own).toLowerCase() === value) === (sign !== "!=");
  if (own === null || own === undefined) return false;
  const other = Number(value);
  return {
    "<": own < other, ">": own > other, "<=": own <= other, ">=": own >= other, "=": Number(own) === other, "!=": Number(own) !== other,
  }[sign];
}

function reorder() {
  const wanted = conditions(place.q), name = place.sort.replace(/^-/, ""), way = place.sort.startsWith("-") ? -1 : 1;
  order = [];
  for (let i = 0; i < rows.length; i++) if (wanted.every((one) => holds(i, one))) order.push(i);
  if (!(name in column)) return;
  order.sort((a, b) => {
    const x = cell(a, name), y = cell(b, name);
    if (x === y) return a - b;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * way;
  });
}

// Columns to show: what the reader chose beside those that tell episodes apart.
function chosenColumns() {
  const own = place.columns ? place.columns.split(",").filter((name) => name in column) : [];
  const differs = (name) => name in column && name !== score() && order.some((i) => cell(i, name) !== cell(order[0], name));
  return [...["step", "phase", "env", "return", "turns", "end"].filter(differs), ...own].filter((name, i, all) => all.indexOf(name) === i);
}

// The mean of a whole run is over tasks, with the interval of an evaluation; that of a part is over its episodes.
function runTable() {
  const name = score(), members = index.runs.map(() => []), sizes = index.runs.map(() => 0);
  index.run.forEach((r) => sizes[r]++);
  order.forEach((i) => members[index.run[i]].push(i));
  const known = (some, what) => some.map((i) => cell(i, what)).filter((value) => typeof value === "number");
  const lines = index.runs.map((run, r) => {
    const whole = members[r].length === sizes[r] && index.intervals[r][name];
    const middle = whole ? whole[0] : mean(known(members[r], name)), range = whole && whole.slice(1);
    return el("tr", {},
      el("th", { scope: "row" }, index.runs.length > 1 ? link({ q: "run=" + (/\s/.test(run) ? '"' + run + '"' : run) }, run) : run),
      el("td", { class: "n" }, el("b", {}, number(middle, 3)), range ? el("span", { class: "quiet" }, " " + range.map((end) => number(end, 2)).join(" to ")) : ""),
      el("td", { class: "n" }, members[r].length),
      el("td", { class: "n" }, number(mean(known(members[r], "return")), 3)),
      el("td", { class: "n" }, number(mean(known(members[r], "turns")), 3)),
      el("td", { class: "n" }, members[r].filter(failed).length));
  });
  const heads = [name + ", 95% interval", "episodes", "return", "turns", "failures"];
  return scrolling("Runs", el("table", { class: "runs" },
    el("thead", {}, el("tr", {}, el("th", {}, "run"), heads.map((head) => el("th", { class: "n" }, head)))), el("tbody", {}, lines)));
}

function table() {
  where.replaceChildren(count(rows.length, "episode") + " of " + count(index.runs.length, "run"));
  keys.textContent = "/ filter · f first failure";
  const search = el("input", { type: "search", id: "filter", value: place.q, placeholder: "words, \"a phrase\", success<1 step>=20 env=MemChunkQA-v0", "aria-label": "Filter episodes by words and by conditions such as success<1" });
  const judge = el("select", { "aria-label": "Score" }, scores.map((name) => el("option", { value: name, selected: name === score() }, name)));
  const told = el("span", { class: "quiet", role: "status" });
  const extra = columns.filter((name) => !HIDDEN.includes(name));
  const boxes = el("details", { class: "columns" }, el("summary", {}, "columns"), el("div", {}, extra.map((name) => {
    const box = el("input", { type: "checkbox", checked: place.columns.split(",").includes(name), change: () => {
      const own = place.columns.split(",").filter((one) => one && one !== name);
      remember({ columns: [...own, ...(box.checked ? [name] : [])].join(",") });
      fill();
    } });
    return el("label", {}, box, " " + name);
  })));
  const summary = el("div"), head = el("thead"), lines = el("tbody");
  const more = el("button", { click: () => { shown += 500; fill(); } });
  search.addEventListener("input", () => { remember({ q: search.value }); shown = 200; fill(); });
  judge.addEventListener("change", () => { remember({ score: judge.value }); fill(); });

  function header(name) {
    const own = place.sort.replace(/^-/, "") === name, down = place.sort.startsWith("-");
    const next = own ? (down ? name : "-" + name) : (isNumeric(name) ? "-" : "") + name;
    return el("th", { class: isNumeric(name) ? "n" : null, "aria-sort": own ? (down ? "descending" : "ascending") : "none" },
      el("button", { click: () => { remember({ sort: next }); fill(); } }, name + (own ? (down ? " ↓" : " ↑") : "")));
  }
  function line(i, texts, numbers) {
    const row = el("tr", { class: "row", id: "row-" + i, click: (event) => { if (!event.target.closest("a")) visit({ view: "e", at: i }); } },
      el("td", {}, link({ view: "e", at: i }, i)), el("td", { class: "n" }, scoreNode(cell(i, score()))),
      texts.map((name) => el("td", { class: name, dir: "auto" }, el("div", {}, name === "run" ? runOf(i) : cell(i, name) || ""))),
      numbers.map((name) => el("td", { class: isNumeric(name) ? "n" : null }, number(cell(i, name)))));
    row.querySelector("a").setAttribute("aria-label", "Episode " + i);
    return row;
  }
  function fill() {
    reorder();
    const texts = [...(index.runs.length > 1 ? ["run"] : []), ...["question", "target", "answer"].filter((name) => name in column)];
    if (!("question" in column) && "task" in column) texts.push("task");
    const numbers = chosenColumns();
    summary.replaceChildren(runTable());
    head.replaceChildren(el("tr", {}, el("th", {}, "#"), [score(), ...texts, ...numbers].map(header)));
    lines.replaceChildren(...order.slice(0, shown).map((i) => line(i, texts, numbers)));
    told.textContent = order.length.toLocaleString("en") + " shown";
    more.textContent = "show more of " + order.length.toLocaleString("en");
    more.hidden = order.length <= shown;
  }
  const failures = el("button", { click: () => { search.value = "success<1"; remember({ q: search.value }); fill(); } }, "failures");
  show("episodes", el("h2", {}, "Runs"), summary, el("h2", {}, "Episodes"),
    el("div", { class: "tools" }, search, "success" in column ? failures : null, el("label", {}, "score ", judge), boxes, told),
    scrolling("Episodes", el("table", {}, head, lines)), el("p", {}, more));
  fill();
}
