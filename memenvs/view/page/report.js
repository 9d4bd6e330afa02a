// The page of memenvs.view. Texts of models and documents become text nodes, never markup; nothing is loaded
// but the page's own blocks of episodes.
"use strict";
(function () {
  const index = JSON.parse(document.getElementById("index").textContent);
  const rows = index.rows, columns = index.columns, place = Object.fromEntries(columns.map((name, i) => [name, i]));
  const main = document.getElementById("main"), where = document.getElementById("where"), keys = document.getElementById("keys");
  const state = { query: "", sort: "", down: false, shown: 200, colour: "", chosen: "", order: rows.map((_, i) => i), turn: 0, episode: -1 };
  const LONG = 20000, NUMBER = /^-?\d+(\.\d+)?$/;

  // Elements.
  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "click") node.addEventListener("click", value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== ""));
    return node;
  }
  function show(...children) { main.replaceChildren(...children.flat(9).filter((child) => child !== null && child !== undefined)); }
  function svg(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  function number(value, digits) {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(digits || 4)));
  }
  function signed(value) { return value === null || value === undefined ? "–" : value === 0 ? "0" : (value >= 0 ? "+" : "−") + number(Math.abs(value)); }
  function cell(i, name) { return name in place ? rows[i][place[name]] : null; }

  // Bodies: blocks of lines, each parsed when its episode is shown.
  const blocks = {}, waiting = {};
  window.memenvsBlock = function (n, text) { blocks[n] = text.split("\n"); (waiting[n] || []).forEach((go) => go()); delete waiting[n]; };
  function body(i) {
    const n = Math.floor(i / index.block);
    const found = () => JSON.parse(blocks[n][i % index.block]);
    if (blocks[n]) return Promise.resolve(found());
    const inline = document.getElementById("block-" + n);
    if (inline) { blocks[n] = inline.textContent.split("\n"); return Promise.resolve(found()); }
    return new Promise((resolve, reject) => {
      (waiting[n] = waiting[n] || []).push(() => resolve(found()));
      const script = document.createElement("script");
      script.nonce = index.nonce;
      script.src = "episodes/" + n + ".js";
      script.onerror = () => reject(new Error("episodes/" + n + ".js cannot be read; keep the folder together"));
      document.head.append(script);
    });
  }

  // The table.
  function matches(i, terms) {
    return terms.every(([name, sign, value]) => {
      if (sign === "") return columns.some((column, c) => typeof rows[i][c] === "string" && rows[i][c].toLowerCase().includes(name));
      const own = rows[i][place[name]];
      if (!NUMBER.test(value)) return sign === "!=" ? String(own).toLowerCase() !== value : String(own).toLowerCase() === value;
      if (own === null || own === undefined) return false;
      const other = Number(value);
      return { "<": own < other, ">": own > other, "<=": own <= other, ">=": own >= other, "=": Number(own) === other, "!=": Number(own) !== other }[sign];
    });
  }
  function terms(query) {
    return query.trim().split(/\s+/).filter(Boolean).map((word) => {
      const found = /^(.+?)(<=|>=|!=|<|>|=)(.+)$/.exec(word);
      const name = found && columns.find((column) => column.toLowerCase() === found[1].toLowerCase());
      return name ? [name, found[2], found[3].toLowerCase()] : [word.toLowerCase(), "", ""];
    });
  }
  function failed(i) { return cell(i, "end") === "failed" || (cell(i, "success") !== null && cell(i, "success") < 1); }
  function reorder() {
    const wanted = terms(state.query);
    state.order = [];
    for (let i = 0; i < rows.length; i++) if (!wanted.length || matches(i, wanted)) state.order.push(i);
    if (state.sort) {
      const c = place[state.sort], way = state.down ? -1 : 1;
      state.order.sort((a, b) => {
        const x = rows[a][c], y = rows[b][c];
        if (x === y) return a - b;
        if (x === null || x === undefined) return 1;
        if (y === null || y === undefined) return -1;
        return (x < y ? -1 : 1) * way;
      });
    }
  }
  function table() {
    state.episode = -1;
    where.replaceChildren(rows.length + " episodes of " + index.runs.length + (index.runs.length === 1 ? " file" : " files"));
    keys.textContent = "/ filter · Enter open · f first failure";
    const search = el("input", { type: "search", id: "filter", value: state.query, placeholder: "words, or success<1 step>=20 env=MemChunkQA-v0", "aria-label": "Filter episodes by words and by conditions such as success<1" });
    const sort = el("select", { "aria-label": "Sort by" }, el("option", { value: "" }, "in order"), columns.map((name) => el("option", { value: name, selected: name === state.sort }, "by " + name)));
    const way = el("button", { click: () => { state.down = !state.down; fill(); }, "aria-label": "Turn the order round" }, "↕");
    const count = el("span", { class: "quiet", role: "status" });
    const head = el("tr", {}, el("th", {}, "#"), columns.map((name) => el("th", { class: isNumber(name) ? "n" : null, "data-name": name }, el("button", { click: () => { state.down = state.sort === name ? !state.down : isNumber(name); state.sort = name; sort.value = name; fill(); } }, name))));
    const rowsNode = el("tbody"), more = el("button", { click: () => { state.shown += 500; fill(); } });
    search.addEventListener("input", () => { state.query = search.value; state.shown = 200; fill(); });
    sort.addEventListener("change", () => { state.sort = sort.value; state.down = Boolean(sort.value) && isNumber(sort.value); fill(); });
    function fill() {
      reorder();
      count.textContent = state.order.length + " shown";
      head.querySelectorAll("th[data-name]").forEach((th) => {
        const own = th.dataset.name === state.sort;
        th.setAttribute("aria-sort", own ? (state.down ? "descending" : "ascending") : "none");
        th.firstChild.textContent = th.dataset.name + (own ? (state.down ? " ↓" : " ↑") : "");
      });
      rowsNode.replaceChildren(...state.order.slice(0, state.shown).map((i) => {
        const line = el("tr", { class: "row" }, el("td", {}, el("a", { href: "#e" + i, "aria-label": "Episode " + i }, String(i))), columns.map((name, c) => el("td", { class: (isNumber(name) ? "n" : "") + (name === "success" ? (failed(i) ? " failure" : " success") : "") }, number(rows[i][c]))));
        line.addEventListener("click", (event) => { if (!event.target.closest("a")) location.hash = "e" + i; });
        return line;
      }));
      more.textContent = "show more of " + state.order.length;
      more.hidden = state.order.length <= state.shown;
    }
    show(el("div", { class: "tools" }, search, sort, way, el("button", { click: () => { search.value = state.query = "success<1"; fill(); } }, "failures"), count), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), rowsNode)), el("p", {}, more));
    fill();
  }
  const numeric = {};
  function isNumber(name) {
    if (!(name in numeric)) numeric[name] = rows.some((row) => typeof row[place[name]] === "number");
    return numeric[name];
  }

  // Texts.
  function cut(text, make, limit) {
    // A text that may be long: its beginning, and more of it on demand.
    const from = (start, end) => {
      if (end >= text.length) return [make(start, text.length)];
      const rest = el("button", { class: "more", click: () => rest.replaceWith(...from(end, end + 100000)) }, "show more of " + text.length.toLocaleString("en") + " characters");
      return [make(start, end), rest];
    };
    return from(0, limit || LONG);
  }
  function spansOf(text, parts) {
    const found = [];
    for (const part of parts) {
      if (!part || !part.trim()) continue;
      const at = text.indexOf(part);
      if (at >= 0) found.push([at, at + part.length]);
    }
    return merged(found);
  }
  function merged(spans) {
    const out = [];
    for (const [a, b] of spans.sort((x, y) => x[0] - y[0])) {
      if (out.length && a <= out[out.length - 1][1]) out[out.length - 1][1] = Math.max(b, out[out.length - 1][1]);
      else out.push([a, b]);
    }
    return out;
  }
  function answersIn(text, answers) {
    const found = [], lower = text.toLowerCase();
    for (const answer of (answers || []).flat()) {
      const word = String(answer).toLowerCase();
      if (word.length < 2 || lower.length !== text.length) continue;
      for (let at = lower.indexOf(word); at >= 0 && found.length < 200; at = lower.indexOf(word, at + word.length)) found.push([at, at + word.length]);
    }
    return merged(found);
  }
  function marked(text, spans, title) {
    return cut(text, (from, to) => {
      const out = document.createDocumentFragment();
      let at = from;
      for (const [a, b] of spans) {
        if (b <= from || a >= to) continue;
        out.append(text.slice(at, Math.max(a, from)), el("mark", { title }, text.slice(Math.max(a, from), Math.min(b, to))));
        at = Math.min(b, to);
      }
      out.append(text.slice(at, to));
      return out;
    });
  }
  function aroundEvidence(text, spans) {
    // A long chunk: the evidence and what stands around it, the rest behind buttons.
    if (text.length < 1500) return marked(text, spans, "evidence");
    const near = merged(spans.map(([a, b]) => [Math.max(0, a - 200), Math.min(text.length, b + 200)]));
    const windows = near.length ? near : [[0, 500]];
    const out = [];
    let at = 0;
    const gap = (a, b) => {
      if (b <= a) return;
      const button = el("button", { class: "more", click: () => button.replaceWith(text.slice(a, b)) }, "… " + (b - a).toLocaleString("en") + " characters …");
      out.push(button);
    };
    for (const [a, b] of windows) {
      gap(at, a);
      out.push(marked(text.slice(a, b), spans.filter(([x, y]) => x >= a && y <= b).map(([x, y]) => [x - a, y - a]), "evidence"));
      at = b;
    }
    gap(at, text.length);
    return out;
  }
  function labelled(label, node, more) { return [el("div", { class: "label" }, label), el("div", { class: "text" + (more || "") }, node)]; }

  // The difference of two memories, by line; by word only inside lines that are mostly equal.
  function words(text) { return text.match(/\s*\S+/g) || []; }
  function lineOf(text) {
    const counts = new Map();
    words(text).forEach((word) => counts.set(word.trim(), (counts.get(word.trim()) || 0) + 1));
    return { text, words: words(text), counts, entry: (/^\[\d+\] /.exec(text) || [""])[0] };
  }
  function alike(x, y) {
    // The share of their words that two lines have in common; 0 if it is below 0.6 and neither continues the other.
    if (x.text === y.text) return x.words.length ? 1 : 0.01;
    let both = 0;
    x.counts.forEach((count, word) => { both += Math.min(count, y.counts.get(word) || 0); });
    const share = 2 * both / (x.words.length + y.words.length);
    return share >= 0.6 ? share : both && (x.text.startsWith(y.text) || y.text.startsWith(x.text)) ? 0.6 : 0;
  }
  function aligned(a, b, weight) {
    // Pairs [x, y] that go through both lists in order, x or y null without a partner, with the largest total weight.
    const n = a.length, m = b.length, w = m + 1, out = [];
    let i = 0, j = 0;
    if (n * m <= 1e6) {
      const best = new Float64Array((n + 1) * w);
      const paired = (i, j) => { const own = weight(a[i], b[j]); return own && own + best[(i + 1) * w + j + 1]; };
      for (i = n - 1; i >= 0; i--) for (j = m - 1; j >= 0; j--) best[i * w + j] = Math.max(paired(i, j), best[(i + 1) * w + j], best[i * w + j + 1]);
      for (i = j = 0; i < n && j < m;) {
        if (best[i * w + j] && paired(i, j) === best[i * w + j]) out.push([a[i++], b[j++]]);
        else if (best[(i + 1) * w + j] >= best[i * w + j + 1]) out.push([a[i++], null]);
        else out.push([null, b[j++]]);
      }
    }
    return out.concat(a.slice(i).map((x) => [x, null]), b.slice(j).map((y) => [null, y]));
  }
  function diff(before, after) {
    const [a, b] = [before, after].map((text) => text ? text.split("\n").map(lineOf) : []), out = [];
    const push = (kind, text) => {
      const last = out[out.length - 1];
      if (last && last[0] === kind) last[1] += text;
      else if (last && last[0] && kind && !/\s$/.test(last[1]) && !/^\s/.test(text)) out.push(["", " "], [kind, text]);
      else out.push([kind, text]);
    };
    const many = a.length * words(after).length > 4e6;  // then only equal lines are paired
    const near = (x, y) => x.entry || y.entry ? Number(x.entry === y.entry) : many ? Number(x.text === y.text) : alike(x, y);
    for (const [x, y] of aligned(a, b, near)) {
      if (x && y && x.text === y.text) push("", y.text + "\n");
      else if (x && y && alike(x, y)) {
        for (const [v, u] of aligned(x.words, y.words, (v, u) => Number(v.trim() === u.trim()))) push(v && u ? "" : v ? "del" : "ins", !u || v && v.length > u.length ? v : u);
        push("", "\n");
      } else {
        if (x) push("del", x.text + "\n");
        if (y) push("ins", y.text + "\n");
      }
    }
    return out;
  }
  function memoryDiff(before, after) {
    const parts = diff(before, after);
    const count = (kind) => words(parts.filter((part) => part[0] === kind).map((part) => part[1]).join(" ")).length;
    const nodes = parts.map(([kind, text]) => kind ? el(kind, {}, cut(text, (a, b) => document.createTextNode(text.slice(a, b)))) : cut(text, (a, b) => document.createTextNode(text.slice(a, b))));
    const kept = count(""), added = count("ins"), removed = count("del");
    return [el("div", { class: "label" }, "memory: " + added + " words added, " + removed + " removed, " + kept + " kept"), el("div", { class: "text" }, nodes.length ? nodes : "(empty)")];
  }

  // Credit as colour.
  function choices(record) {
    const found = [];
    const names = Object.keys(record.credits || {});
    if (names.length) found.push("credit");
    if (names.length > 1) names.forEach((name) => found.push("credit of " + name));
    if ((record.tokens || []).some((own) => own.advantages && own.spans)) found.push("advantage");
    if ((record.tokens || []).some((own) => own.spans)) found.push("log-probability");
    return found.concat("nothing");
  }
  const unitsOf = new WeakMap();
  function units(record, turn) {
    // `placesIn` the reply of a turn, found once.
    if (!unitsOf.has(record)) unitsOf.set(record, []);
    const known = unitsOf.get(record);
    return known[turn] = known[turn] || placesIn(record.replies[turn]);
  }
  function placesIn(text) {
    // From places in characters, as the file counts them, to those in a text of this language (UTF-16).
    if (!/[\ud800-\udbff]/.test(text)) return (at) => at;
    const places = [0];
    let at = 0;
    for (const character of text) places.push(at += character.length);
    return (at) => places[Math.min(at, places.length - 1)];
  }
  function valuesOf(record, turn, by) {
    // [start, end, value, what] of the characters of a turn's reply.
    const place = units(record, turn);
    return countedValues(record, turn, by).map(([a, b, value, what]) => [place(a), place(b), value, what]);
  }
  function countedValues(record, turn, by) {
    const length = record.replies[turn].length, out = [];
    if (by.startsWith("credit")) {
      const only = by.slice("credit of ".length);
      for (const [name, some] of Object.entries(record.credits)) {
        if (only && name !== only) continue;
        for (const credit of some) {
          if (credit.turn !== turn) continue;
          const [a, b] = credit.span || [0, length];
          out.push([a, b, credit.value, name + " " + signed(credit.value) + (credit.reason ? " (" + credit.reason + ")" : "") + (credit.advantage ? " (advantage)" : "")]);
        }
      }
    } else if (by === "advantage" || by === "log-probability") {
      const own = (record.tokens || [])[turn];
      if (own && own.spans) own.spans.forEach(([a, b], t) => {
        const value = by === "advantage" ? (own.advantages || [])[t] : own.logprobs[t];
        if (b > a && value !== undefined) out.push([a, b, value, (own.advantages ? "advantage " + signed(own.advantages[t]) + ", " : "") + "log-probability " + number(own.logprobs[t]) + " nats"]);
      });
    }
    return out;
  }
  function strongest(record, by) {
    let most = 0;
    for (let turn = 0; turn < record.replies.length; turn++) for (const [, , value] of pieces(valuesOf(record, turn, by), record.replies[turn].length)) most = Math.max(most, Math.abs(value || 0));
    return most;
  }
  function pieces(values, length) {
    // Cut the reply where a value begins or ends; values that lie over each other add up.
    if (!values.length) return [];
    const begins = new Map(), ends = new Map(), cuts = new Set([0, length]);
    for (const value of values) {
      const a = Math.min(value[0], length), b = Math.min(value[1], length);
      if (b <= a) continue;
      cuts.add(a); cuts.add(b);
      begins.set(a, (begins.get(a) || []).concat([value])); ends.set(b, (ends.get(b) || []).concat([value]));
    }
    const places = [...cuts].sort((x, y) => x - y), open = new Set(), out = [];
    for (let i = 0; i + 1 < places.length; i++) {
      (ends.get(places[i]) || []).forEach((value) => open.delete(value));
      (begins.get(places[i]) || []).forEach((value) => open.add(value));
      const known = [...open].filter((value) => value[2] !== null && value[2] !== undefined);
      out.push([places[i], places[i + 1], known.length ? known.reduce((sum, value) => sum + value[2], 0) : null, [...open].map((value) => value[3]).join("\n")]);
    }
    return out;
  }
  function shade(value, most) {
    const share = most ? Math.min(1, Math.abs(value) / most) : 0;
    return "rgba(var(" + (value >= 0 ? "--good" : "--bad") + ")," + (share ? 0.08 + 0.47 * share : 0).toFixed(3) + ")";
  }
  function replyNodes(record, turn, by, most) {
    const text = record.replies[turn], parts = pieces(valuesOf(record, turn, by), text.length);
    const draw = (from, to) => cut(text.slice(from, to), (start, end) => {
      const a = from + start, b = from + end, out = document.createDocumentFragment();
      if (!parts.length) { out.append(text.slice(a, b)); return out; }
      for (const [x, y, value, what] of parts) {
        if (y <= a || x >= b) continue;
        const piece = text.slice(Math.max(x, a), Math.min(y, b));
        if (value === null) { out.append(what ? el("span", { title: what }, piece) : piece); continue; }
        const span = el("span", { class: "credit", title: what }, piece);
        span.style.backgroundColor = shade(by === "log-probability" ? Math.min(value, -1e-9) : value, most);
        out.append(span);
      }
      return out;
    });
    const thought = /^\s*<think>[\s\S]*?(<\/think>|$)/.exec(text) || /^[\s\S]*?<\/think>/.exec(text);
    if (!text) return ["(an empty reply)"];
    if (!thought || !thought[0].replace(/<\/?think>/g, "").trim()) return draw(0, text.length);
    const inside = thought[0].length;
    return [el("details", { class: "thought" }, el("summary", {}, "thought, " + inside.toLocaleString("en") + " characters"), draw(0, inside)), draw(inside, text.length)];
  }

  // Boards.
  const CELLS = { "#": "wall", "_": "floor", " ": "floor", "O": "target", ".": "target", "√": "done", "*": "done", "X": "box", "$": "box", "P": "player", "@": "player", "S": "player target", "+": "player target" };
  function boardsIn(text) {
    const out = [], lines = text.split("\n");
    let from = 0, plain = [];
    const flush = () => { if (plain.length) out.push(["text", plain.join("\n")]); plain = []; };
    while (from < lines.length) {
      let to = from;
      while (to < lines.length && lines[to].length >= 3 && lines[to].length === lines[from].length && /^[#_O√XPS .*$@+]+$/.test(lines[to]) && lines[to].includes("#")) to++;
      if (to - from >= 3) { flush(); out.push(["board", lines.slice(from, to)]); from = to; } else { plain.push(lines[from]); from++; }
    }
    flush();
    return out;
  }
  function board(lines) {
    const size = 26, wide = [...lines[0]].length, node = svg("svg", { class: "board", width: wide * size, height: lines.length * size, viewBox: "0 0 " + wide * size + " " + lines.length * size, role: "img", "aria-label": "Board, row by row: " + lines.join(" / ") });
    lines.forEach((line, y) => [...line].forEach((symbol, x) => {
      const kind = CELLS[symbol] || "floor", left = x * size, top = y * size;
      node.append(svg("rect", { x: left, y: top, width: size, height: size, class: kind === "wall" ? "c-wall" : "c-floor" }));
      if (kind.includes("target") || kind === "done") node.append(svg("circle", { cx: left + size / 2, cy: top + size / 2, r: size / 3.4, class: "c-target" }));
      if (kind === "box" || kind === "done") node.append(svg("rect", { x: left + 4, y: top + 4, width: size - 8, height: size - 8, rx: 3, class: kind === "box" ? "c-box" : "c-done" }));
      if (kind.includes("player")) node.append(svg("circle", { cx: left + size / 2, cy: top + size / 2, r: size / 4, class: "c-player" }));
    }));
    return node;
  }
  function readNodes(record, text, evidence) {
    if (/Sokoban/.test(record.env)) return boardsIn(text).map(([kind, what]) => kind === "board" ? board(what) : what + "\n");
    return marked(text, spansOf(text, evidence), "evidence");
  }
  function feedbackNodes(record, text) {
    if (/Sokoban/.test(record.env)) return readNodes(record, text, []);
    const found = /<(information|result)>([\s\S]*?)<\/\1>/.exec(text);
    if (!found) return marked(text, answersIn(text, record.answers), "an accepted answer");
    const passages = found[2].split(/^(?=Doc \d+\(Title: )/m).filter((part) => part.trim());
    return [text.slice(0, found.index), passages.map((part) => {
      const title = /^Doc (\d+)\(Title: (.*?)\) /.exec(part), rest = title ? part.slice(title[0].length) : part;
      const hits = answersIn(rest, record.answers);
      return el("details", { class: "passage", open: hits.length > 0 }, el("summary", {}, title ? title[1] + ". " + title[2] : "passage", hits.length ? el("span", { class: "success" }, " · holds an accepted answer") : ""), el("div", { class: "text" }, marked(rest.trim(), hits, "an accepted answer")));
    }), text.slice(found.index + found[0].length)];
  }

  // What was paid.
  function componentNames(record) {
    const names = new Set();
    (record.turns || []).forEach((turn) => Object.keys(turn.rewards || {}).forEach((name) => names.add(name)));
    return [...names];
  }
  function creditSum(record, name, turn) {
    let sum = 0, known = false;
    for (const credit of record.credits[name] || []) if (credit.turn === turn && credit.value !== null) { sum += credit.value; known = true; }
    return known ? sum : null;
  }
  function payTable(record, turns) {
    const components = componentNames(record), methods = Object.keys(record.credits || {}), signals = Object.keys(record.signals || {});
    let total = 0;
    const sums = record.turn_rewards.map((value) => (total += value || 0));
    const replaced = record.replaces_outcome;
    const head = el("tr", {}, el("th", {}, "turn"), components.map((name) => el("th", { class: "n", title: name === "outcome" && replaced ? "a method pays in its place" : null }, name + (name === "outcome" && replaced ? " (replaced)" : ""))), methods.map((name) => el("th", { class: "n" }, name)), signals.map((name) => el("th", { class: "n" }, "signal of " + name)), el("th", { class: "n" }, "reward"), el("th", { class: "n" }, "return so far"));
    return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, turns.map((k) => el("tr", {}, el("td", {}, String(k + 1)), components.map((name) => el("td", { class: "n" }, signed(record.turns[k].rewards[name]))), methods.map((name) => el("td", { class: "n" }, signed(creditSum(record, name, k)))), signals.map((name) => el("td", { class: "n" }, number((record.signals[name] || [])[k]))), el("td", { class: "n" }, signed(record.turn_rewards[k])), el("td", { class: "n" }, signed(sums[k])))))));
  }

  // Charts.
  function chart(series, options) {
    const w = 420, h = 150, left = 38, bottom = 22, top = 8, n = Math.max(...series.map((one) => one.values.length));
    const all = series.flatMap((one) => one.values).filter((value) => value !== null && value !== undefined);
    const low = options.low !== undefined ? options.low : Math.min(0, ...all), high = options.high !== undefined ? options.high : (Math.max(0, ...all) > low ? Math.max(0, ...all) : low + 1);
    const x = (k) => left + (n < 2 ? 0.5 : k / (n - 1)) * (w - left - 12), y = (value) => top + (1 - (value - low) / (high - low || 1)) * (h - top - bottom);
    const said = series.map((one) => one.name + ": " + one.values.map((value) => number(value, 3)).join(", ")).join("; ");
    const node = svg("svg", { width: w, height: h, viewBox: "0 0 " + w + " " + h, role: "img", "aria-label": options.title + ", by turn. " + said });
    for (const value of [low, (low + high) / 2, high]) { node.append(svg("line", { x1: left, x2: w - 8, y1: y(value), y2: y(value), class: "axis" })); const text = svg("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }); text.textContent = number(value, 2); node.append(text); }
    for (let k = 0; k < n; k += Math.ceil(n / 12)) { const text = svg("text", { x: x(k), y: h - 6, "text-anchor": "middle" }); text.textContent = String(k + 1); node.append(text); }
    series.forEach((one, s) => {
      const points = one.values.map((value, k) => [k, value]).filter(([, value]) => value !== null && value !== undefined);
      node.append(svg("polyline", { points: points.map(([k, value]) => x(k) + "," + y(value)).join(" "), class: "s" + s }));
      points.forEach(([k, value]) => { const dot = svg("circle", { cx: x(k), cy: y(value), r: 3.5, class: "p" + s }); const title = svg("title"); title.textContent = one.name + ", turn " + (k + 1) + ": " + number(value, 3); dot.append(title); node.append(dot); });
    });
    return el("figure", {}, node, el("figcaption", {}, options.title, series.length > 1 ? ": " + series.map((one, s) => (s ? "dashed " : "solid ") + one.name).join(", ") : "", options.note ? " — " + options.note : ""));
  }
  function content(text) { return new Set((text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []).filter((word) => word.length > 3 || /\d/.test(word))); }
  function share(wanted, text) {
    if (!wanted.size) return null;
    const own = content(text);
    let held = 0;
    wanted.forEach((word) => { if (own.has(word)) held++; });
    return held / wanted.size;
  }
  function memories(record) {
    // What the memory is after each turn; a turn that leaves none keeps the one before.
    return record.turns.map((turn) => turn.memory);
  }
  function evidenceChart(record) {
    const held = memories(record);
    if (!record.evidence || !record.evidence.length || !held.some((memory) => typeof memory === "string")) return null;
    const wanted = content(record.evidence.join(" "));
    content(record.question).forEach((word) => wanted.delete(word));
    let read = "";
    const shown = record.turns.map((turn) => share(wanted, (read += " " + (turn.evidence_in_chunk || []).join(" ") + " " + (/<(information|result)>/.test(turn.feedback) ? turn.feedback : ""))));
    const holding = held.map((memory, k) => typeof memory === "string" && answersIn(memory, record.answers).length ? k + 1 : 0).filter(Boolean);
    const told = (record.answers || []).length ? (holding.length ? "; an accepted answer is in the memory after turn " + holding.join(", ") : "; no accepted answer is ever in the memory") : "";
    return chart([{ name: "in memory", values: held.map((memory) => typeof memory === "string" ? share(wanted, memory) : null) }, { name: "read so far", values: shown }], { title: "evidence kept", low: 0, high: 1, note: "share of the evidence's words that the question does not have" + told });
  }
  function returnChart(record) {
    let total = 0;
    const sums = record.turn_rewards.map((value) => (total += value || 0));
    return sums.length > 1 ? chart([{ name: "return", values: sums }], { title: "return so far" }) : null;
  }

  // An episode.
  function neighbours(i) { const at = state.order.indexOf(i); return at < 0 ? [i - 1, i + 1] : [state.order[at - 1], state.order[at + 1]]; }
  function go(i) { if (i !== undefined && i >= 0 && i < rows.length) location.hash = "e" + i; }
  function nextFailure(i) { const at = state.order.indexOf(i); for (let k = at + 1; k < state.order.length; k++) if (failed(state.order[k])) return go(state.order[k]); }
  function groupOf(i) { const own = index.groups[i], out = []; index.groups.forEach((name, k) => { if (name === own) out.push(k); }); return out; }
  function fact(name, value) { return value === null || value === undefined || value === "" ? null : el("div", {}, el("dt", {}, name), el("dd", {}, number(value))); }
  function colourTool(record, redraw) {
    const options = choices(record);
    state.colour = options.includes(state.chosen) ? state.chosen : options[0];
    const select = el("select", { "aria-label": "Colour replies by" }, options.map((name) => el("option", { value: name, selected: name === state.colour }, name)));
    select.addEventListener("change", () => { state.chosen = select.value; redraw(); });
    const most = strongest(record, state.colour), legend = el("span", { class: "legend quiet" });
    if (most) [-most, most].forEach((value) => {
      if (state.colour === "log-probability" && value > 0) return;
      const swatch = el("span", { class: "swatch" });
      swatch.style.backgroundColor = shade(value, most);
      legend.append(...(value < 0 ? [signed(value), swatch] : [swatch, signed(value)]));
    });
    return el("span", { class: "legend" }, "colour by", select, legend);
  }
  function numbersOf(record, turn) {
    const lines = [];
    for (const [name, some] of Object.entries(record.credits || {})) for (const credit of some) if (credit.turn === turn) lines.push([name, credit.span ? "characters " + credit.span.join(" to ") : "the whole turn", signed(credit.value), credit.reason || (credit.advantage ? "an advantage" : "")]);
    if (!lines.length) return null;
    return el("details", {}, el("summary", {}, "credits in numbers"), el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, lines.map((line) => el("tr", {}, line.map((text) => el("td", {}, text))))))));
  }
  function turnCard(record, k, before, most) {
    const turn = record.turns[k] || { rewards: {}, feedback: "" }, out = [];
    const read = turn.observation;
    if (typeof read === "string" && turn.chunk_span) {
      const chunk = read.slice(...turn.chunk_span.map(placesIn(read))), spans = spansOf(chunk, turn.evidence_in_chunk || []);
      out.push(labelled("chunk, " + chunk.length.toLocaleString("en") + " characters" + (spans.length ? ", with evidence" : ", no evidence"), aroundEvidence(chunk, spans)));
      out.push(el("details", {}, el("summary", {}, "the whole prompt"), el("div", { class: "text" }, cut(read, (a, b) => document.createTextNode(read.slice(a, b)), 5000))));
    } else if (typeof read === "string" && read) {
      const short = k > 0 || read.length > 3000;
      const inside = el("div", { class: "text" }, readNodes(record, read, turn.evidence_in_chunk || []));
      out.push(short ? el("details", {}, el("summary", {}, "the whole prompt, " + read.length.toLocaleString("en") + " characters"), inside) : [el("div", { class: "label" }, "read"), inside]);
    }
    const own = (record.tokens || [])[k];
    out.push(el("div", { class: "label" }, "reply" + (own && own.ids.length ? ", " + own.ids.length + " tokens" + (own.finished ? "" : ", cut at its limit") : "")), el("div", { class: "text reply" }, replyNodes(record, k, state.colour, most)));
    out.push(numbersOf(record, k));
    if (typeof turn.memory === "string" && (turn.memory || before)) out.push(memoryDiff(before, turn.memory));
    if (turn.feedback && turn.feedback.trim()) out.push(labelled("came back", feedbackNodes(record, turn.feedback.trim())));
    if (record.turns[k]) out.push(payTable(record, [k]));
    return el("section", { class: "card turn", id: "turn-" + k, "aria-label": "Turn " + (k + 1) }, el("div", { class: "top" }, el("h3", {}, "Turn " + (k + 1) + " of " + record.replies.length), el("span", { class: "quiet" }, "reward " + signed(record.turn_rewards[k]))), out);
  }
  function episode(i, keep) {
    state.episode = i;
    if (!keep) state.turn = 0;
    const [before, after] = neighbours(i);
    where.replaceChildren(el("a", { href: "#" }, "episodes"), " › " + i);
    keys.textContent = "n p episode · j k turn · f failure · g group · Esc table";
    body(i).then((record) => {
      if (state.episode !== i) return;
      const tool = colourTool(record, () => episode(i, true)), most = strongest(record, state.colour), group = groupOf(i);
      const tools = el("div", { class: "tools" }, el("button", { click: () => go(before), "aria-label": "Previous episode" }, "← previous"), el("button", { click: () => go(after), "aria-label": "Next episode" }, "next →"), el("button", { click: () => nextFailure(i) }, "next failure"), group.length > 1 ? el("a", { href: "#g" + i }, "its group of " + group.length) : null, tool);
      const total = record.turn_rewards.reduce((sum, value) => sum + (value || 0), 0);
      const facts = el("dl", { class: "facts" }, fact("environment", record.env), fact("step", record.step), fact("", record.phase), fact("group", cell(i, "group")), fact("member", record.member), fact("seed", record.seed < 0 || cell(i, "group") !== null ? null : record.seed), fact("end", record.end), fact("return", total), Object.entries(record.metrics || {}).map(([name, value]) => name === "return" ? null : fact(name, value)));
      const question = record.question ? labelled("question", readNodes(record, record.question, [])) : null;
      const answers = (record.answers || []).length ? labelled("accepted answers", record.answers.map((some) => [].concat(some).join(" or ")).join("; ")) : null;
      const charts = [evidenceChart(record), returnChart(record)].filter(Boolean);
      let memory = "";
      const cards = record.replies.map((_, k) => {
        const card = turnCard(record, k, memory, most), now = (record.turns[k] || {}).memory;
        if (typeof now === "string") memory = now;
        return card;
      });
      show(tools, el("section", { class: "card", "aria-label": "Episode" }, el("h2", {}, (record.task || "episode " + i)), facts, record.error ? el("p", { class: "failure" }, record.error) : null, question, answers, charts.length ? el("div", { class: "charts" }, charts) : null, record.turns && record.turns.length > 1 ? el("details", {}, el("summary", {}, "all rewards"), payTable(record, record.turns.map((_, k) => k))) : null), cards.length ? cards : el("p", {}, "No turn was played."));
      if (keep) current(state.turn, false); else { window.scrollTo(0, 0); main.focus({ preventScroll: true }); current(0, false); }
    }).catch((error) => show(el("p", { class: "failure", role: "alert" }, String(error.message || error))));
  }
  function current(k, scroll) {
    const cards = main.querySelectorAll(".turn");
    if (!cards.length) return;
    state.turn = Math.max(0, Math.min(k, cards.length - 1));
    cards.forEach((card, n) => card.classList.toggle("current", n === state.turn));
    if (scroll) cards[state.turn].scrollIntoView({ block: "start" });
  }

  // A group.
  function meanAdvantage(record, k) {
    const own = (record.tokens || [])[k];
    if (!own || !own.advantages || !own.advantages.length) return null;
    return own.advantages.reduce((sum, value) => sum + (value || 0), 0) / own.advantages.length;
  }
  function group(i) {
    state.episode = -1;
    const members = groupOf(i).slice(0, 64);
    where.replaceChildren(el("a", { href: "#" }, "episodes"), " › ", el("a", { href: "#e" + i }, String(i)), " › group");
    keys.textContent = "Esc table";
    Promise.all(members.map(body)).then((records) => {
      const returns = records.map((record) => record.turn_rewards.reduce((sum, value) => sum + (value || 0), 0));
      const mean = returns.reduce((a, b) => a + b, 0) / returns.length, sd = Math.sqrt(returns.reduce((a, b) => a + (b - mean) ** 2, 0) / returns.length);
      const first = records[0], tool = colourTool(first, () => group(i)), most = Math.max(...records.map((record) => strongest(record, state.colour)));
      const learned = records.some((record) => record.replies.some((_, k) => meanAdvantage(record, k) !== null));
      const line = (name, value) => el("tr", {}, el("th", { scope: "row" }, name), records.map((record, m) => el("td", { class: "n" }, value(record, m))));
      const table = el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, ""), members.map((k) => el("th", { class: "n" }, el("a", { href: "#e" + k }, "episode " + k))))), el("tbody", {}, line("return", (_, m) => number(returns[m])), line("return − mean", (_, m) => signed(returns[m] - mean)), line("… / standard deviation", (_, m) => sd > 1e-12 ? signed((returns[m] - mean) / sd) : "0"), line("success", (record) => number((record.metrics || {}).success)), line("end", (record) => record.end), learned ? Array.from({ length: Math.max(...records.map((record) => record.replies.length)) }, (_, k) => line("learner's advantage, turn " + (k + 1), (record) => k < record.replies.length ? signed(meanAdvantage(record, k)) : "")) : null)));
      const turns = Math.max(...records.map((record) => record.replies.length));
      const side = Array.from({ length: turns }, (_, k) => [el("h3", {}, "Turn " + (k + 1)), el("div", { class: "side" }, records.map((record, m) => el("section", { class: "card", "aria-label": "Turn " + (k + 1) + " of episode " + members[m] }, el("div", { class: "quiet" }, "episode " + members[m] + ", reward " + signed(record.turn_rewards[k])), k < record.replies.length ? el("div", { class: "text reply", tabindex: "0" }, replyNodes(record, k, state.colour, most)) : el("p", { class: "quiet" }, "had ended"))))]);
      show(el("div", { class: "tools" }, tool), el("section", { class: "card" }, el("h2", {}, "Group of " + groupOf(i).length + ": " + (first.task || "")), first.question ? labelled("question", readNodes(first, first.question, [])) : null, table), side);
      window.scrollTo(0, 0);
    }).catch((error) => show(el("p", { class: "failure", role: "alert" }, String(error.message || error))));
  }

  // The way round.
  function route() {
    const found = /^#([eg])(\d+)$/.exec(location.hash);
    if (!found || Number(found[2]) >= rows.length) return table();
    return found[1] === "e" ? episode(Number(found[2])) : group(Number(found[2]));
  }
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape") { if (typing) event.target.blur(); else location.hash = ""; return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const i = state.episode;
    if (i < 0) {
      if (event.key === "/") { const filter = document.getElementById("filter"); if (filter) { event.preventDefault(); filter.focus(); } }
      if (event.key === "f") { const first = state.order.find(failed); if (first !== undefined) go(first); }
      return;
    }
    const [before, after] = neighbours(i);
    if (event.key === "n") go(after);
    else if (event.key === "p") go(before);
    else if (event.key === "f") nextFailure(i);
    else if (event.key === "j") current(state.turn + 1, true);
    else if (event.key === "k") current(state.turn - 1, true);
    else if (event.key === "g" && groupOf(i).length > 1) location.hash = "g" + i;
  });
  window.addEventListener("hashchange", route);
  reorder();
  route();
})();
