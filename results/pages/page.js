// What reading needs no script for: sorting, printing what is folded, and coming back to the same place on a reload.
"use strict";

const value = (row, column) => {
  const cell = row.children[column];
  const text = cell.dataset.value ?? cell.textContent.trim();
  return text === "" || Number.isNaN(Number(text)) ? text : Number(text);
};

/** What is missing comes last, whichever way the rest is sorted. */
const compare = (a, b, sign) => {
  if (a === "" || b === "") return (a === "") - (b === "");
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
};

const sort = (table, column, order) => {
  const sign = order === "ascending" ? 1 : -1;
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.classList.contains("title"));
    rows.sort((a, b) => compare(value(a, column), value(b, column), sign));
    body.append(...rows);
  }
  for (const head of table.querySelectorAll(".columns th")) head.removeAttribute("aria-sort");
  table.querySelectorAll(".columns th")[column].setAttribute("aria-sort", order);
};

const tables = [...document.querySelectorAll("table[data-sortable]")];
for (const table of tables) {
  for (const [column, head] of [...table.querySelectorAll(".columns th")].entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    if (!button.textContent.trim()) button.setAttribute("aria-label", "name");
    head.append(button);
    button.addEventListener("click", () => {
      const lowest = table.querySelector(`td:nth-child(${column + 1})[data-lowest]`);
      const first = column === 0 || lowest ? "ascending" : "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      sort(table, column, head.getAttribute("aria-sort") === first ? other : first);
      remember();
    });
  }
}

window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});

// A page of a grid that runs loads itself again; what the reader chose stays chosen.
const chosen = () => ({
  radios: [...document.querySelectorAll("input:checked")].map((input) => input.id),
  open: [...document.querySelectorAll("details")].map((folded) => folded.open),
  sorted: tables.map((table) => {
    const heads = [...table.querySelectorAll(".columns th")];
    const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    return column < 0 ? null : [column, heads[column].getAttribute("aria-sort")];
  }),
  scroll: window.scrollY,
});
const remember = () => {
  try {
    sessionStorage.setItem(document.title, JSON.stringify(chosen()));
  } catch {
    // a browser that keeps nothing: the page begins anew
  }
};
const recall = () => {
  let state = null;
  try {
    state = JSON.parse(sessionStorage.getItem(document.title));
  } catch {
    return;
  }
  if (!state) return;
  for (const id of state.radios) {
    const radio = document.getElementById(id);
    if (radio) radio.checked = true;
  }
  const folds = [...document.querySelectorAll("details")];
  if (folds.length === state.open.length) folds.forEach((folded, place) => (folded.open = state.open[place]));
  if (tables.length === state.sorted.length) {
    tables.forEach((table, place) => state.sorted[place] && sort(table, ...state.sorted[place]));
  }
  window.scrollTo({ top: state.scroll, behavior: "instant" });
};

const refresh = Number(document.body.dataset.refresh ?? 0);
if (refresh) {
  recall();
  window.setTimeout(() => {
    remember();
    window.location.reload();
  }, 1000 * refresh);
}
