// A training run as it goes: the server is asked every two seconds for what was written since.

const EVERY = 2000, NEWEST = 20;
const FIRST = ["return", "success", "em", "f1", "eval_return", "eval_success", "eval_em"];
const NEVER = ["step", "time"];
const rows = [], episodes = [];
let at = { log: 0, episodes: 0 }, steps = null;

function node(tag, attributes, ...children) {
  const made = tag === "svg" || tag in { polyline: 1, circle: 1, line: 1, text: 1, title: 1 }
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function number(value) {
  return value === null || value === undefined ? "–" : String(Number(value.toPrecision(4)));
}

function brief(value) {
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

function duration(seconds) {
  const minutes = Math.round(seconds / 60);
  return minutes < 1 ? Math.round(seconds) + " s" : minutes < 60 ? minutes + " min" : (minutes / 60).toFixed(1) + " h";
}

// Names of what was logged: results first, then components and signals, then losses, then times.
function names() {
  const all = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => !NEVER.includes(name));
  const varies = (name) => new Set(rows.map((row) => row[name])).size > 1;
  const rank = (name) => {
    if (FIRST.includes(name)) return FIRST.indexOf(name);
    return name.startsWith("seconds") || name.endsWith("per_second") ? 300 : name.includes("/") ? 100 : 200;
  };
  return all.filter((name) => FIRST.includes(name) || varies(name)).sort((a, b) => rank(a) - rank(b));
}

function curve(name) {
  const w = 320, h = 130, left = 52, right = 8, top = 8, bottom = 20;
  const points = rows.filter((row) => typeof row[name] === "number").map((row) => [row.step, row[name]]);
  if (!points.length) return null;
  const values = points.map(([, value]) => value), low = Math.min(...values), high = Math.max(...values);
  const first = points[0][0], last = Math.max(steps || 0, points[points.length - 1][0]);
  const x = (step) => left + ((step - first) / (last - first || 1)) * (w - left - right);
  const y = (value) => top + (1 - (high > low ? (value - low) / (high - low) : 0.5)) * (h - top - bottom);
  const label = (text, x, y, anchor) => node("text", { x, y, "text-anchor": anchor }, text);
  const now = points[points.length - 1];
  return node("figure", {}, node("figcaption", {}, name + " ", node("b", {}, brief(now[1]))),
    node("svg", { viewBox: "0 0 " + w + " " + h, role: "img", "aria-label": name + " by step: from " + number(low) + " to " + number(high) + ", now " + number(now[1]) },
      ...[low, ...(high > low ? [high] : [])].map((value) => node("line", { x1: left, x2: w - right, y1: y(value), y2: y(value), class: "axis" })),
      ...[low, ...(high > low ? [high] : [])].map((value) => label(brief(value), left - 5, y(value) + 4, "end")),
      label(String(first), left, h - 5, "middle"), label(String(last), w - right, h - 5, "end"),
      node("polyline", { points: points.map(([step, value]) => x(step) + "," + y(value)).join(" "), class: "curve" }),
      node("circle", { cx: x(now[0]), cy: y(now[1]), r: 3.5, class: "now" })));
}

function draw() {
  const last = rows[rows.length - 1], recent = rows.slice(-10).map((row) => row.seconds).filter((value) => typeof value === "number");
  const done = last ? last.step : 0, each = recent.reduce((sum, value) => sum + value, 0) / (recent.length || 1);
  const left = steps && last ? (steps - done > 0 ? ", " + duration((steps - done) * each) + " left" : ", done") : "";
  document.getElementById("state").textContent = last ? "step " + done + (steps ? " of " + steps : "") + ", " + duration(each) + " a step" + left : "waiting for the first step";
  document.getElementById("progress").value = steps ? done / steps : 0;
  document.getElementById("curves").replaceChildren(...names().map(curve).filter(Boolean));
  document.getElementById("episodes").replaceChildren(...episodes.map((one) => node("tr", {},
    node("td", { class: "n" }, number(one.step)), node("td", {}, one.phase || ""),
    node("td", { class: "question", dir: "auto" }, node("div", {}, one.question)), node("td", { class: "answer", dir: "auto" }, node("div", {}, one.reply)),
    node("td", { class: "n" }, number(one.success)), node("td", { class: "n" }, number(one.return)))));
}

async function ask() {
  try {
    const answer = await fetch("data?log=" + at.log + "&episodes=" + at.episodes);
    const data = await answer.json();
    if (data.log_at < at.log) rows.length = 0;
    at = { log: data.log_at, episodes: data.episodes_at };
    steps = data.steps;
    rows.push(...data.log);
    episodes.unshift(...data.episodes.reverse());
    episodes.length = Math.min(episodes.length, NEWEST);
    document.title = data.name + " · memenvs";
    document.getElementById("name").textContent = data.name;
    draw();
  } catch (error) {
    document.getElementById("state").textContent = "no answer; is `memenvs view --follow` still running?";
  }
  setTimeout(ask, EVERY);
}
ask();
