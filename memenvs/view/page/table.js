// The first page: a line a run, then a line an episode with question, target, answer and score.

const HIDDEN = ["run", "question", "target", "answer", "group", "number", "member", "task"];
let order = rows.map((_, i) => i);
let shown = 200;

// What a condition may name: a column of episodes, or what made their run.
const fields = [...new Set(["run", ...columns, ...index.settings.flatMap((facts) => Object.keys(facts))])];
function fieldValue(i, name) { return name === "run" ? runOf(i) : name in column ? cell(i, name) : settingsOf(index.run[i]).get(name); }

// A filter is words, "phrases", and conditions such as success<1 or env=MemChunkQA-v0: [name, sign, value], for
// words without a sign. A name that is no field is kept as it is.
function conditions(query) {
  return (query.match(/(?:"[^"]*"?|[^\s"])+/g) || []).flatMap((given) => {
    const word = given.replace(/"/g, "");
    const found = given.startsWith('"') && !/^"[^"]+"[<>=!]/.test(given) ? null : /^(.+?)(<=|>=|!=|<|>|=)(.*)$/.exec(word);
    if (!found) return [[word.toLowerCase(), "", ""]];
    const name = fields.find((one) => one.toLowerCase() === found[1].toLowerCase()) || found[1];
    return found[3] ? [[name, found[2], found[3].toLowerCase()]] : []; // its value is being typed
  });
}

function unknownFields(query) { return conditions(query).filter(([name, sign]) => sign && !fields.includes(name)).map(([name]) => name); }

// The fields, those that share most pairs of letters with a name first.
function closestFields(name) {
  const pairs = (text) => new Set([...text.toLowerCase()].map((letter, i, all) => letter + (all[i + 1] || "")));
  const wanted = pairs(name);
  const common = (own) => { const has = pairs(own); return (2 * [...wanted].filter((pair) => has.has(pair)).length) / (wanted.size + has.size); };
  return [...fields].sort((x, y) => common(y) - common(x));
}

function holds(i, [name, sign, value]) {
  if (!sign) return rows[i].some((own) => typeof own === "string" && own.toLowerCase().includes(name));
  const own = fieldValue(i, name);
  if (!/^-?\d+(\.\d+)?$/.test(value)) return fields.includes(name) && (String(own).toLowerCase() === value) === (sign !== "!=");
  if (own === null || own === undefined) return false;
  const other = Number(value);
  return {
    "<": own < other, ">": own > other, "<=": own <= other, ">=": own >= other, "=": Number(own) === other, "!=": Number(own) !== other,
  }[sign];
}

// Compares values in the order of a column: those that are not known come last, also in falling order.
function compareValues(x, y, isFalling) {
  const [hasX, hasY] = [x, y].map((value) => value !== null && value !== undefined && value !== "");
  if (!hasX || !hasY) return hasY - hasX;
  return x === y ? 0 : (x < y ? -1 : 1) * (isFalling ? -1 : 1);
}

function reorder() {
  const wanted = conditions(place.q), name = place.sort.replace(/^-/, ""), isFalling = place.sort.startsWith("-");
  order = [];
  for (let i = 0; i < rows.length; i++) if (wanted.every((one) => holds(i, one))) order.push(i);
  if (name in column) order.sort((a, b) => compareValues(cell(a, name), cell(b, name), isFalling) || a - b);
}

// A head of a column that sorts by it; the address keeps the order under `kept`.
function sortHead(kept, name, isNumber, label, redraw) {
  const own = place[kept].replace(/^-/, "") === name, down = place[kept].startsWith("-");
  const next = own ? (down ? name : "-" + name) : (isNumber ? "-" : "") + name;
  return el("th", { class: isNumber ? "n" : null, "aria-sort": own ? (down ? "descending" : "ascending") : "none" },
    el("button", { click: () => { remember({ [kept]: next }); redraw(); } }, label + (own ? (down ? " ↓" : " ↑") : "")));
}

// Columns to show: what the reader chose beside those that tell episodes apart.
function chosenColumns() {
  const own = place.columns ? place.columns.split(",").filter((name) => name in column) : [];
  const differs = (name) => name in column && name !== score() && order.some((i) => cell(i, name) !== cell(order[0], name));
  return [...["step", "phase", "env", "return", "turns", "end"].filter(differs), ...own].filter((name, i, all) => all.indexOf(name) === i);
}

const MAIN_SETTINGS = ["policy", "memory mode", "methods", "reward", "scorer", "tokens", "date"].filter((name) => index.settings.some((facts) => name in facts));

// What is shown of each run with an episode under the filter. The mean of a whole run is over tasks, with the
// interval of an evaluation; that of a part is over its episodes.
function runLines() {
  const name = score(), members = index.runs.map(() => []), sizes = index.runs.map(() => 0);
  index.run.forEach((r) => sizes[r]++);
  order.forEach((i) => members[index.run[i]].push(i));
  const average = (some, what) => mean(some.map((i) => cell(i, what)).filter((value) => typeof value === "number"));
  return index.runs.map((run, r) => {
    const whole = members[r].length === sizes[r] && index.intervals[r][name], facts = settingsOf(r);
    return {
      r, range: whole ? whole.slice(1) : null,
      run, [name]: whole ? whole[0] : average(members[r], name), episodes: members[r].length, ...Object.fromEntries(MAIN_SETTINGS.map((fact) => [fact, facts.get(fact)])),
      return: average(members[r], "return"), turns: average(members[r], "turns"), failures: members[r].filter(failed).length,
    };
  }).filter((line) => line.episodes);
}

function runFilter(run) { return "run=" + (/\s/.test(run) ? '"' + run + '"' : run); }

function runTable(redraw) {
  const name = score(), lines = runLines(), by = place.runs.replace(/^-/, ""), isFalling = place.runs.startsWith("-");
  if (!lines.length) return null;
  const numbers = [name, "episodes", ...(name === "return" ? [] : ["return"]), "turns", "failures"].filter((one) => one !== "failures" || lines.some((line) => line.failures));
  const heads = [...numbers.slice(0, 2), ...MAIN_SETTINGS.filter((fact) => fact !== "date"), ...numbers.slice(2), ...MAIN_SETTINGS.filter((fact) => fact === "date")];
  const isNumber = (head) => numbers.includes(head) || head === "tokens";
  const shownValue = (line, head) => {
    if (head === name) return [el("b", {}, line[name] === null ? "–" : decimals(line[name])), line.range ? el("span", { class: "quiet" }, " " + span(...line.range)) : ""];
    if (head === "tokens" && line.tokens !== undefined) return line.tokens.toLocaleString("en");
    if (head === "date") return (line.date || "–").split(" ").flatMap((part, k) => [k ? " " : "", el("span", {}, part)]); // a day is not broken
    return isNumber(head) ? number(line[head], 3) : line[head] === undefined ? "–" : line[head];
  };
  const tick = (r) => index.runs.length < 2 ? null : el("td", {}, el("input", {
    type: "checkbox", "aria-label": "Compare " + index.runs[r], checked: chosenRuns().includes(r),
    change: (event) => { remember({ compare: chooseRun(r, event.target.checked) }); redraw(); main.querySelector('[aria-label="' + CSS.escape("Compare " + index.runs[r]) + '"]')?.focus(); },
  }));
  if (by) lines.sort((x, y) => compareValues(x[by], y[by], isFalling) || x.r - y.r);
  return [
    scrolling("Runs", el("table", { class: "runs" },
      el("thead", {}, el("tr", {}, index.runs.length > 1 ? el("th", {}, el("span", { class: "unseen" }, "compare")) : null, ["run", ...heads].map((head) => sortHead("runs", head, isNumber(head), head === name ? name + ", 95% interval" : head, redraw)))),
      el("tbody", {}, lines.map((line) => el("tr", {}, tick(line.r),
        el("th", { scope: "row" }, index.runs.length > 1 ? link({ q: runFilter(line.run) }, line.run) : line.run),
        heads.map((head) => el("td", { class: isNumber(head) ? "n" : head === "date" ? "date" : "setting" }, shownValue(line, head)))))))),
    settings(lines), comparison(redraw),
  ];
}

// What made the runs: of one all of it, of several what differs.
function settings(lines) {
  const facts = lines.map((line) => settingsOf(line.r)), names = [...new Set(facts.flatMap((own) => [...own.keys()]))];
  if (!names.length) return null;
  if (lines.length === 1) {
    return el("details", { class: "settings" }, el("summary", {}, "what made this run"), el("dl", { class: "facts" }, names.map((name) => fact(name, facts[0].get(name)))));
  }
  const differs = names.filter((name) => !MAIN_SETTINGS.includes(name) && facts.some((own) => own.get(name) !== facts[0].get(name)));
  const same = names.filter((name) => !MAIN_SETTINGS.includes(name) && !differs.includes(name));
  return el("details", { class: "settings" }, el("summary", {}, "what made these runs"),
    differs.length ? scrolling("Settings that differ", el("table", {}, el("thead", {}, el("tr", {}, ["run", ...differs].map((name) => el("th", {}, name)))),
      el("tbody", {}, lines.map((line, n) => el("tr", {}, el("th", { scope: "row" }, line.run), differs.map((name) => el("td", { class: "setting" }, number(facts[n].get(name))))))))) : null,
    same.length ? [el("div", { class: "label" }, "the same in all of them"), el("dl", { class: "facts" }, same.map((name) => fact(name, facts[0].get(name))))] : null);
}

function table() {
  where.replaceChildren(count(rows.length, "episode") + " of " + count(index.runs.length, "run"));
  keys.textContent = "/ filter · f first failure";
  const search = el("input", { type: "search", id: "filter", value: place.q, placeholder: "words, \"a phrase\", success<1 step>=20 env=MemChunkQA-v0", "aria-label": "Filter episodes by words and by conditions such as success<1" });
  const judge = el("select", { "aria-label": "Score" }, scores.map((name) => el("option", { value: name, selected: name === score() }, name)));
  const told = el("span", { class: "quiet", role: "status" }), wrong = el("p", { class: "failure", role: "alert" });
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

  function line(i, texts, numbers) {
    const row = el("tr", { class: "row", id: "row-" + i, click: (event) => { if (!event.target.closest("a")) visit({ view: "e", at: i }); } },
      el("td", {}, link({ view: "e", at: i }, i)), el("td", { class: "n" }, scoreNode(cell(i, score()))),
      texts.map((name) => el("td", { class: name, dir: "auto" }, el("div", {}, name === "run" ? runOf(i) : name === "answer" ? answerOf(i) : cell(i, name) || ""))),
      numbers.map((name) => el("td", { class: isNumeric(name) ? "n" : null }, number(cell(i, name)))));
    row.querySelector("a").setAttribute("aria-label", "Episode " + i);
    return row;
  }
  function fill() {
    reorder();
    const texts = [...(index.runs.length > 1 ? ["run"] : []), ...["question", "target", "answer"].filter((name) => name in column)];
    if (!("question" in column) && "task" in column) texts.push("task");
    const numbers = chosenColumns();
    summary.replaceChildren(...present([runTable(fill)]));
    head.replaceChildren(el("tr", {}, el("th", {}, "#"), [score(), ...texts, ...numbers].map((name) => sortHead("sort", name, isNumeric(name), name, fill))));
    lines.replaceChildren(...order.slice(0, shown).map((i) => line(i, texts, numbers)));
    told.textContent = order.length === rows.length ? "" : order.length.toLocaleString("en") + " of " + count(rows.length, "episode") + " match";
    const [unknown] = unknownFields(place.q);
    wrong.textContent = unknown ? "There is no field “" + unknown + "”; did you mean " + closestFields(unknown).slice(0, 3).join(", ") + "? Put text with such a sign in quotes." : "";
    body.hidden = !order.length;
    episodes.hidden = chosenRuns().length > 1; // a row a task shows them
    more.textContent = "show more of " + order.length.toLocaleString("en");
    more.hidden = order.length <= shown;
  }
  const failures = el("button", { click: () => { search.value = "success<1"; remember({ q: search.value }); fill(); } }, "failures");
  const episodes = el("div", {}, el("h2", {}, "Episodes"), scrolling("Episodes", el("table", {}, head, lines)), el("p", {}, more));
  const body = el("div", {}, el("h2", {}, "Runs"), summary, episodes);
  show("episodes", el("div", { class: "tools" }, search, "success" in column ? failures : null, el("label", {}, "score ", judge), boxes, told), wrong, body);
  fill();
}
