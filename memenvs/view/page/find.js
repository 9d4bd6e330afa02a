// Search in an episode. Folded texts, and those that are not yet in the page, open where something is found.

let found = [], foundAt = 0;

// The pattern of a text: letters in either case, any space between its words.
function pattern(text, flags) {
  return new RegExp(text.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&").replace(/\s+/g, "\\s+"), flags);
}

// The ranges of a pattern in an element, also across the pieces of a text.
function rangesIn(box, wanted) {
  const isShown = (node) => (node.parentElement.matches(".more") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  const nodes = [], walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT, isShown);
  let text = "", k = 0;
  for (; walker.nextNode(); text += walker.currentNode.data) nodes.push([text.length, walker.currentNode]);
  const at = (place, before) => {
    while (k + 1 < nodes.length && nodes[k + 1][0] + before <= place) k++;
    return [nodes[k][1], place - nodes[k][0]];
  };
  return [...text.matchAll(wanted)].map((match) => {
    const range = document.createRange();
    range.setStart(...at(match.index, 0));
    range.setEnd(...at(match.index + match[0].length, 1));
    return range;
  });
}

function highlight(name, ranges) {
  if (!CSS.highlights) return;
  CSS.highlights.set(name, new Highlight());
  ranges.forEach((range) => CSS.highlights.get(name).add(range));
}

function find(given) {
  const text = given.trim();
  const hidden = (button) => pattern(text, "iu").test(button.unseen(text.length - 1));
  const next = () => text && [...main.querySelectorAll(".more")].find(hidden);
  for (let button = next(); button; button = next()) button.click();
  const boxes = text ? [...main.querySelectorAll(".text:not(.text .text)")] : [];
  found = boxes.flatMap((box) => rangesIn(box, pattern(text, "giu")));
  highlight("found", found);
  foundAt = 0;
}

function goToFound() {
  const range = found[foundAt];
  highlight("found-now", range ? [range] : []);
  if (!range) return;
  const node = range.startContainer.parentElement, card = node.closest(".turn");
  for (let box = node.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  if (card) current(Number(card.id.slice("turn-".length)), false);
  window.scrollBy(0, range.getBoundingClientRect().top - window.innerHeight / 3);
}

// Enter goes to the next place, with Shift to the one before.
function findTool() {
  const told = el("span", { class: "quiet", role: "status" });
  const say = () => { told.textContent = found.length ? foundAt + 1 + " of " + found.length : place.find ? "not found" : ""; };
  const search = el("input", { type: "search", value: place.find, placeholder: "find in this episode", "aria-label": "Find in this episode", keydown: (event) => {
    if (event.key !== "Enter") return;
    if (search.value !== place.find) {
      remember({ find: search.value });
      find(place.find);
    } else if (found.length) foundAt = (foundAt + (event.shiftKey ? found.length - 1 : 1)) % found.length;
    goToFound();
    say();
  } });
  return { node: [search, told], start: () => { find(place.find); say(); } };
}

function unfold() {
  main.querySelectorAll(".turn details").forEach((one) => { one.open = true; });
  for (let button; (button = main.querySelector(".turn .more"));) button.click();
}
