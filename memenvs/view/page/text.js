// Texts: long ones in parts, evidence and answers marked, memories compared.

const LONG = 20000;

// A button that puts text[a:b] into the page as nodes(); a search asks what is unseen, and some characters around it.
function more(label, text, a, b, nodes) {
  const button = el("button", { class: "more", click: () => button.replaceWith(...present([nodes()])) }, label);
  button.unseen = (margin) => text.slice(Math.max(0, a - margin), b + margin);
  return button;
}

// A text that may be long: its beginning, and more of it on demand. make(start, end) gives nodes.
function parts(text, make, limit = LONG) {
  const from = (start, end) => {
    if (end >= text.length) return [make(start, text.length)];
    const label = "show more of " + count(text.length, "character");
    return [make(start, end), more(label, text, end, text.length, () => from(end, end + 100000))];
  };
  return from(0, limit);
}

function plain(text, limit) { return parts(text, (a, b) => document.createTextNode(text.slice(a, b)), limit); }

function merged(spans) {
  const out = [];
  for (const [a, b] of spans.sort((x, y) => x[0] - y[0])) {
    const last = out[out.length - 1];
    if (last && a <= last[1]) last[1] = Math.max(b, last[1]);
    else out.push([a, b]);
  }
  return out;
}

// Where pieces of text are in a text.
function spansOf(text, pieces) {
  const found = [];
  for (const piece of pieces) {
    const at = piece && piece.trim() ? text.indexOf(piece) : -1;
    if (at >= 0) found.push([at, at + piece.length]);
  }
  return merged(found);
}

// Where accepted answers are in a text, as whole words.
function answersIn(text, answers) {
  const found = [], lower = text.toLowerCase();
  const inWord = (character) => character !== undefined && /[\p{L}\p{N}]/u.test(character);
  if (lower.length !== text.length) return found;
  for (const answer of answers.flat().map((one) => one.toLowerCase())) {
    if (!answer.trim()) continue;
    for (let at = lower.indexOf(answer); at >= 0; at = lower.indexOf(answer, at + 1)) {
      const isWord = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u.test(answer);
      if (isWord || (!inWord(lower[at - 1]) && !inWord(lower[at + answer.length]))) found.push([at, at + answer.length]);
    }
  }
  return merged(found);
}

function marked(text, spans, title) {
  return parts(text, (start, end) => {
    const out = document.createDocumentFragment();
    let at = start;
    for (const [a, b] of spans) {
      if (b <= start || a >= end) continue;
      out.append(text.slice(at, Math.max(a, at)), el("mark", { title }, text.slice(Math.max(a, at), Math.min(b, end))));
      at = Math.min(b, end);
    }
    out.append(text.slice(at, end));
    return out;
  });
}

// A long chunk: evidence and its surroundings, the rest behind buttons.
function aroundSpans(text, spans, title) {
  if (text.length < 1500) return marked(text, spans, title);
  const near = merged(spans.map(([a, b]) => [Math.max(0, a - 200), Math.min(text.length, b + 200)]));
  const out = [];
  let at = 0;
  const skip = (a, b) => {
    if (b <= a) return;
    out.push(more("… " + count(b - a, "character") + " …", text, a, b, () => text.slice(a, b)));
  };
  for (const [a, b] of near.length ? near : [[0, 500]]) {
    skip(at, a);
    out.push(marked(text.slice(a, b), spans.filter(([x, y]) => x >= a && y <= b).map(([x, y]) => [x - a, y - a]), title));
    at = b;
  }
  skip(at, text.length);
  return out;
}

// From places in characters, as the file counts them, to places in a JavaScript string (UTF-16).
function placesIn(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (at) => at;
  const places = [0];
  let at = 0;
  for (const character of text) places.push((at += character.length));
  return (at) => places[Math.min(at, places.length - 1)];
}

// Words with the space before them; where a script has no spaces, characters.
const NO_SPACES = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Thai}";
const WORD = new RegExp("\\s*(?:[" + NO_SPACES + "]|[^\\s" + NO_SPACES + "]+)", "gu");
function words(text) { return text.match(WORD) || []; }

// The words that tell what a text says: long ones and numbers.
function content(text) {
  const found = text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
  return new Set(found.filter((word) => word.length > 3 || /\d/.test(word) || /[^\x00-\u024f]/.test(word)));
}

function share(wanted, text) {
  if (!wanted.size) return null;
  const own = content(text);
  return [...wanted].filter((word) => own.has(word)).length / wanted.size;
}

// The difference of two memories: by line, and by word inside lines that are mostly equal.
function lineOf(text) {
  const own = words(text), counts = new Map();
  own.forEach((word) => counts.set(word.trim(), (counts.get(word.trim()) || 0) + 1));
  return { text, words: own, counts, entry: (/^\[\d+\] /.exec(text) || [""])[0] };
}

// The share of their words that two lines have in common; 0 if it is below 0.6 and neither continues the other.
function alike(x, y) {
  if (x.text === y.text) return x.words.length ? 1 : 0.01;
  let both = 0;
  x.counts.forEach((n, word) => { both += Math.min(n, y.counts.get(word) || 0); });
  const common = (2 * both) / (x.words.length + y.words.length);
  return common >= 0.6 ? common : both && (x.text.startsWith(y.text) || y.text.startsWith(x.text)) ? 0.6 : 0;
}

// Pairs [x, y] through both lists in order, x or y null without a partner, with the largest total weight.
function aligned(a, b, weight) {
  const n = a.length, m = b.length, w = m + 1, out = [];
  let i = 0, j = 0;
  if (n * m <= 1e6) {
    const best = new Float64Array((n + 1) * w);
    const paired = (i, j) => { const own = weight(a[i], b[j]); return own && own + best[(i + 1) * w + j + 1]; };
    for (i = n - 1; i >= 0; i--) {
      for (j = m - 1; j >= 0; j--) best[i * w + j] = Math.max(paired(i, j), best[(i + 1) * w + j], best[i * w + j + 1]);
    }
    for (i = j = 0; i < n && j < m;) {
      if (best[i * w + j] && paired(i, j) === best[i * w + j]) out.push([a[i++], b[j++]]);
      else if (best[(i + 1) * w + j] >= best[i * w + j + 1]) out.push([a[i++], null]);
      else out.push([null, b[j++]]);
    }
  }
  return out.concat(a.slice(i).map((x) => [x, null]), b.slice(j).map((y) => [null, y]));
}

// Pieces [kind, text] with the kind "ins", "del" or "" for what stayed.
function diff(before, after) {
  const [a, b] = [before, after].map((text) => (text ? text.split("\n").map(lineOf) : [])), out = [];
  const push = (kind, text) => {
    const last = out[out.length - 1];
    if (last && last[0] === kind) last[1] += text;
    else if (last && last[0] && kind && !/\s$/.test(last[1]) && !/^\s/.test(text)) out.push(["", " "], [kind, text]);
    else out.push([kind, text]);
  };
  const tooMany = a.length * words(after).length > 4e6; // then only equal lines are paired
  const near = (x, y) => {
    if (x.entry || y.entry) return Number(x.entry === y.entry);
    return tooMany ? Number(x.text === y.text) : alike(x, y);
  };
  for (const [x, y] of aligned(a, b, near)) {
    if (x && y && x.text === y.text) push("", y.text + "\n");
    else if (x && y && alike(x, y)) {
      for (const [v, u] of aligned(x.words, y.words, (v, u) => Number(v.trim() === u.trim()))) {
        push(v && u ? "" : v ? "del" : "ins", !u || (v && v.length > u.length) ? v : u);
      }
      push("", "\n");
    } else {
      if (x) push("del", x.text + "\n");
      if (y) push("ins", y.text + "\n");
    }
  }
  return out;
}

function memoryNode(before, after, open) {
  const pieces = diff(before, after);
  const n = (kind) => pieces.filter((piece) => piece[0] === kind).reduce((all, piece) => all + words(piece[1]).length, 0);
  const [added, removed, kept] = [n("ins"), n("del"), n("")];
  const said = added || removed
    ? "memory: " + count(added, "word") + " added, " + removed + " removed, " + kept + " kept" : kept ? "memory unchanged" : "memory empty";
  const nodes = pieces.map(([kind, text]) => (kind ? el(kind, {}, plain(text)) : plain(text)));
  return el("details", { class: "memory", open }, el("summary", {}, said),
    el("div", { class: "text", dir: "auto" }, nodes.length ? nodes : "(empty)"));
}
