// What every part of the page uses: elements, numbers, the index of episodes, and the address.
// Texts of models and documents become text nodes, never markup.

const index = JSON.parse(document.getElementById("index").textContent);
const { rows, columns } = index;
const column = Object.fromEntries(columns.map((name, i) => [name, i]));
const main = document.getElementById("main");
const where = document.getElementById("where");
const keys = document.getElementById("keys");

const EMPTY = "(empty)"; // in the place of a reply without text

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function present(children) {
  return children.flat(9).filter((child) => child !== null && child !== undefined && child !== "");
}

function show(title, ...children) {
  document.title = title + " · memenvs";
  main.replaceChildren(...present(children));
}

function labelled(label, ...nodes) {
  return [el("div", { class: "label" }, label), el("div", { class: "text", dir: "auto" }, ...nodes)];
}

function scrolling(label, node) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, node);
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(digits)));
}

function signed(value) {
  if (value === null || value === undefined) return "–";
  return value === 0 ? "0" : (value > 0 ? "+" : "-") + number(Math.abs(value));
}

// Three decimals, or one from 100 on, as the tables of an evaluation have them.
function decimals(value, sign = "") {
  const digits = Math.abs(value) < 100 ? 3 : 1, text = Math.abs(value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return (value < 0 && /[1-9]/.test(text) ? "-" : sign) + text;
}
function span(low, high) { return "[" + decimals(low) + ", " + decimals(high) + "]"; }

function count(n, what) { return n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s"); }
function sum(values) { return values.reduce((total, value) => total + (value || 0), 0); }
function mean(values) { return values.length ? sum(values) / values.length : null; }

function deviation(values) {
  const middle = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - middle) ** 2)));
}

// A value of the index, of episode i.
function cell(i, name) { return name in column ? rows[i][column[name]] : null; }
function runOf(i) { return index.runs[index.run[i]]; }
function settingsOf(r) { return new Map(Object.entries(index.settings[r])); }
function answerOf(i) { return cell(i, "answer") || (cell(i, "turns") ? EMPTY : ""); }
function failed(i) { return cell(i, "end") === "failed" || (cell(i, "success") !== null && cell(i, "success") < 1); }

const numericColumns = {};
function isNumeric(name) {
  if (!(name in numericColumns)) numericColumns[name] = rows.some((row) => typeof row[column[name]] === "number");
  return numericColumns[name];
}

// The number by which episodes are judged: the reader's choice, or the first that there is.
const SCORES = ["success", "em", "sub_em", "f1", "accuracy", "outcome", "return"];
const COUNTS = ["step", "number", "member", "turns"];
const scores = columns.filter((name) => isNumeric(name) && !COUNTS.includes(name));
function score() {
  return scores.includes(place.score) ? place.score : SCORES.find((name) => scores.includes(name)) || scores[0];
}

function scoreNode(value) {
  const kind = value === 1 ? ["success", "✓ "] : value === 0 ? ["failure", "✗ "] : ["", ""];
  return el("span", { class: kind[0] }, kind[1] + number(value));
}

// Bodies of episodes come in blocks of lines; each is parsed when its episode is shown.
const blocks = {}, waiting = {};
window.memenvsBlock = function (n, text) {
  blocks[n] = text.split("\n");
  (waiting[n] || []).forEach((go) => go());
  delete waiting[n];
};

function body(i) {
  const n = Math.floor(i / index.block);
  const found = () => shownEpisode(JSON.parse(blocks[n][i % index.block]));
  const inline = document.getElementById("block-" + n);
  if (!blocks[n] && inline) blocks[n] = inline.textContent.split("\n");
  if (blocks[n]) return Promise.resolve(found());
  return new Promise((resolve, reject) => {
    (waiting[n] = waiting[n] || []).push(() => resolve(found()));
    const script = el("script", { src: "episodes/" + n + ".js" });
    script.nonce = index.nonce;
    script.onerror = () => reject(new Error("episodes/" + n + ".js cannot be read; keep the folder together"));
    document.head.append(script);
  });
}

// The address holds what is shown: #e12?q=success<1&turn=3 is the fourth turn of episode 12 under a filter.
const BLANK = { view: "", at: 0, q: "", sort: "", score: "", columns: "", colour: "", find: "", turn: "", runs: "", strip: "", compare: "" };
const place = { ...BLANK };

function address(changes) {
  const next = { ...place, ...changes }, given = new URLSearchParams();
  for (const name of ["q", "sort", "score", "columns", "colour", "find", "turn", "runs", "strip", "compare"]) if (next[name]) given.set(name, next[name]);
  return "#" + (next.view ? next.view + next.at : "") + (given.size ? "?" + given : "");
}

function readAddress() {
  const [view, given] = location.hash.slice(1).split(/\?(.*)/s);
  const found = /^([egt])(\d+)$/.exec(view) || [];
  const known = found[2] < rows.length;
  Object.assign(place, BLANK, Object.fromEntries(new URLSearchParams(given || "")));
  place.view = known ? found[1] : "";
  place.at = known ? Number(found[2]) : 0;
}

function remember(changes) {
  Object.assign(place, changes);
  history.replaceState(null, "", address({}));
}

function visit(changes) { location.hash = address({ turn: "", ...changes }); }
function link(changes, ...children) { return el("a", { href: address({ turn: "", ...changes }) }, ...children); }
