// The address chooses what is shown; keys go on from there.

let last = -1; // the episode that was open before the table
function route() {
  readAddress();
  reorder();
  if (place.view === "e") { last = place.at; return episode(place.at); }
  if (place.view) return sideBySide(place.at);
  table();
  const row = document.getElementById("row-" + last);
  if (row) { row.scrollIntoView({ block: "center" }); row.querySelector("a").focus({ preventScroll: true }); }
}

const KEYS = {
  "": { f: () => { const first = order.find(failed); if (first !== undefined) visit({ view: "e", at: first }); } },
  e: {
    n: (i) => go(neighbours(i)[1]), p: (i) => go(neighbours(i)[0]), f: nextFailure,
    o: unfold, j: () => current(Number(place.turn || 0) + 1, true), k: () => current(Number(place.turn || 0) - 1, true),
    g: (i) => { if (groupOf(i).length > 1) visit({ view: "g", at: i }); },
  },
  g: { n: (i) => otherGroup(i, 1), p: (i) => otherGroup(i, -1) },
  t: {},
};

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (place.view) visit({ view: "" });
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = main.querySelector("input[type=search]");
  if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
  const act = KEYS[place.view][event.key];
  if (act) act(place.at);
});
window.addEventListener("hashchange", route);
route();
