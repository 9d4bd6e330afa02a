// What a policy read: chunks, passages and boards, with evidence and answers marked.

const CELLS = {
  "#": "wall", "_": "floor", " ": "floor", "O": "target", ".": "target", "√": "done", "*": "done",
  "X": "box", "$": "box", "P": "player", "@": "player", "S": "player target", "+": "player target",
};
const BOARD_LINE = /^[#_O√XPS .*$@+]+$/;

// ["text", …] and ["board", lines] by turns.
function boardsIn(text) {
  const out = [], lines = text.split("\n");
  let from = 0, between = [];
  const flush = () => { if (between.length) out.push(["text", between.join("\n")]); between = []; };
  while (from < lines.length) {
    let to = from;
    const fits = (line) => line.length >= 3 && line.length === lines[from].length && BOARD_LINE.test(line) && line.includes("#");
    while (to < lines.length && fits(lines[to])) to++;
    if (to - from < 3) { between.push(lines[from++]); continue; }
    flush();
    out.push(["board", lines.slice(from, to)]);
    from = to;
  }
  flush();
  return out;
}

function board(lines) {
  const size = 26, width = [...lines[0]].length * size, height = lines.length * size;
  const node = svg("svg", { class: "board", width, height, viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": "Board, row by row: " + lines.join(" / ") });
  lines.forEach((line, row) => [...line].forEach((symbol, at) => {
    const kind = CELLS[symbol] || "floor", x = at * size, y = row * size, cx = x + size / 2, cy = y + size / 2;
    const boxed = { x: x + 4, y: y + 4, width: size - 8, height: size - 8, rx: 3 };
    node.append(svg("rect", { x, y, width: size, height: size, class: kind === "wall" ? "c-wall" : "c-floor" }));
    if (kind.includes("target") || kind === "done") node.append(svg("circle", { cx, cy, r: size / 3.4, class: "c-target" }));
    if (kind === "box" || kind === "done") node.append(svg("rect", { ...boxed, class: kind === "box" ? "c-box" : "c-done" }));
    if (kind.includes("player")) node.append(svg("circle", { cx, cy, r: size / 4, class: "c-player" }));
  }));
  return node;
}

function isBoards(record) { return /Sokoban/.test(record.env); }
function withBoards(text) { return boardsIn(text).map(([kind, what]) => (kind === "board" ? board(what) : what + "\n")); }
function withoutBoards(text) { return boardsIn(text).filter(([kind]) => kind === "text").map(([, what]) => what).join("\n").trim(); }

// The sentences that answer the question where the task marks them; otherwise whole documents.
function needed(record) { return record.sentences.length ? record.sentences : record.evidence; }

// Where evidence is in a text: the needed sentences, else the whole documents of it.
function evidenceIn(record, text, documents) {
  const exact = spansOf(text, record.sentences);
  return exact.length ? exact : spansOf(text, documents);
}

function passages(record, text) {
  const found = /<(information|result)>([\s\S]*?)<\/\1>/.exec(text);
  if (!found) return marked(text, merged([...evidenceIn(record, text, []), ...answersIn(text, record.answers)]), "evidence");
  const each = found[2].split(/^(?=Doc \d+\(Title: )/m).filter((part) => part.trim());
  return [text.slice(0, found.index), each.map((part) => {
    const title = /^Doc (\d+)\(Title: (.*?)\) /.exec(part), rest = (title ? part.slice(title[0].length) : part).trim();
    const isEvidence = isPassageOfEvidence(record, rest), hasAnswer = answersIn(rest, record.answers).length > 0;
    const spans = evidenceIn(record, rest, []);
    const told = [isEvidence ? "evidence" : "", hasAnswer ? "contains an accepted answer" : ""].filter(Boolean).join(", ");
    return el("details", { class: "passage", open: isEvidence },
      el("summary", {}, title ? title[1] + ". " + title[2] : "passage", told ? el("span", { class: "success" }, " · " + told) : ""),
      el("div", { class: "text", dir: "auto" }, marked(rest, spans.length ? spans : answersIn(rest, record.answers), "evidence")));
  }), text.slice(found.index + found[0].length)];
}

// A passage may be a part of a document of evidence, or hold a sentence of it.
function isPassageOfEvidence(record, passage) {
  const own = passage.replace(/\s+/g, " ");
  return record.sentences.some((sentence) => passage.includes(sentence)) ||
    record.evidence.some((text) => own.length > 40 && text.replace(/\s+/g, " ").includes(own.slice(0, 200)));
}

function feedbackNodes(record, text) { return isBoards(record) ? withBoards(text) : passages(record, text); }

function chunkOf(turn) { return turn.prompt.slice(...turn.chunk.map(placesIn(turn.prompt))); }

// What was read at a turn, with the chunk apart from the rest of the prompt.
function readNode(record, turn, isFirst) {
  const text = turn.prompt;
  if (text === null) return null;
  const whole = (nodes, open) => el("details", { open }, el("summary", {}, "prompt, " + count(text.length, "character")),
    el("div", { class: "text", dir: "auto" }, nodes));
  if (!turn.chunk) {
    const nodes = isBoards(record) ? withBoards(text) : marked(text, evidenceIn(record, text, turn.evidence), "evidence");
    return whole(nodes, isFirst && text.length < 3000);
  }
  const chunk = chunkOf(turn);
  const spans = evidenceIn(record, chunk, turn.evidence);
  const told = "chunk, " + count(chunk.length, "character") + (spans.length ? ", with evidence" : ", no evidence");
  return [labelled(told, aroundSpans(chunk, spans, "evidence")), whole(plain(text, 5000), false)];
}

// What a turn did with the evidence, as evaluation/turns.py decides.
const FATES = {
  f: ["found", "an accepted answer, or evidence, that was not there before"],
  k: ["kept", "an accepted answer is in memory as before"],
  l: ["lost", "an accepted answer that the turn read or had in memory is gone"],
  w: ["wasted", "a search that brought no new evidence"],
};

// For each turn of episode i: whether it read evidence, the share of it that the memory keeps, and what it did with it.
function progress(i, record) {
  const wanted = content(needed(record).join(" "));
  content(record.question).forEach((word) => wanted.delete(word));
  return record.turns.map(({ memory, feedback, evidence }, k) => {
    const searched = /<(information|result)>([\s\S]*?)<\/\1>/.exec(feedback);
    const seen = evidence.length > 0 || Boolean(searched && searched[2].split(/^(?=Doc \d+\(Title: )/m)
      .some((part) => isPassageOfEvidence(record, part.replace(/^Doc \d+\(Title: .*?\) /, "").trim())));
    return { seen, kept: memory === null ? null : share(wanted, memory), fate: (FATES[index.fates[i][k]] || [""])[0] };
  });
}

// What a turn did, as tags of its card.
function tags({ seen, fate }) {
  const [, meaning] = Object.values(FATES).find(([name]) => name === fate) || [];
  return [
    seen ? el("span", { class: "seen" }, "● reads evidence") : null,
    fate ? el("span", { class: fate, title: meaning }, (fate === "lost" ? "▼ " : "") + fate) : null,
  ];
}
