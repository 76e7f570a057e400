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
      const best = table.querySelector(`tbody td:nth-child(${column + 1})`); // none in a column of words
      const first = !best || table.querySelector(`td:nth-child(${column + 1})[data-lowest]`) ? "ascending" : "descending";
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

// Tables and figures are taken along: as text in the clipboard, as files.
const escaped = (text) => text.replace(/[\\&%$#_{}]/g, "\\$&").replace(" ± ", " $\\pm$ ").replaceAll("†", "$^{\\dagger}$").replaceAll("→", "$\\rightarrow$");

/** The cells of a row as text and as LaTeX, in the papers' notation where they have one, with the columns that they span. */
const cellsOf = (row) => [...row.cells].map((cell) => {
  const notation = cell.querySelector("[data-latex]")?.dataset;
  const text = notation?.text ?? cell.textContent.trim().replace(/\s+/g, " ");
  const latex = notation?.latex ?? escaped(text);
  return { text, latex: cell.classList.contains("best") ? `\\textbf{${latex}}` : latex, span: cell.colSpan };
});

/** The rows of a table as it is sorted now, titles of blocks as rows of their own. */
const rowsOf = (table) => [...table.tBodies].flatMap((body) => [...body.rows]);

/** The texts of all rows; the first are the columns' heads, each behind those above it. */
const textsOf = (table) => {
  const lines = [...table.tHead.rows].map((row) => cellsOf(row).flatMap(({ text, span }) => Array(span).fill(text)));
  const heads = lines.at(-1).map((_, place) => lines.map((texts) => texts[place]).filter(Boolean).join(" "));
  return [heads, ...rowsOf(table).map((row) => cellsOf(row).flatMap(({ text, span }) => [text, ...Array(span - 1).fill("")]))];
};

const FORMS = {
  CSV: (table) => textsOf(table).map((texts) => texts.map((text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",")),
  Markdown: (table) => {
    const [head, ...others] = textsOf(table).map((texts) => texts.map((text) => text.replaceAll("|", "\\|")));
    return [head, head.map(() => "---"), ...others].map((texts) => `| ${texts.join(" | ")} |`);
  },
  LaTeX: (table) => {
    const set = (row) => `${cellsOf(row).map(({ latex, span }) => (span > 1 ? `\\multicolumn{${span}}{c}{${latex}}` : latex)).join(" & ")} \\\\`;
    const rules = (row) => {
      let end = 0;
      const ends = cellsOf(row).map(({ text, span }) => ({ text, start: end + 1, end: (end += span) }));
      return ends.filter(({ text }) => text).map((group) => `\\cmidrule(lr){${group.start}-${group.end}}`).join(" ");
    };
    const over = [...table.tHead.rows];
    const under = over.pop();
    const isWord = (place) => rowsOf(table).some((row) => row.className !== "title" && row.cells[place].tagName === "TH");
    return [
      `\\begin{tabular}{${[...under.cells].map((_, place) => (isWord(place) ? "l" : "r")).join("")}}`,
      "\\toprule",
      ...over.flatMap((row) => [set(row), rules(row)]),
      set(under),
      ...rowsOf(table).flatMap((row) => (row.className === "title" ? ["\\midrule", set(row), "\\midrule"] : [set(row)])),
      "\\bottomrule",
      "\\end{tabular}",
    ];
  },
};

const copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.body.appendChild(Object.assign(document.createElement("textarea"), { value: text }));
    area.select();
    document.execCommand("copy"); // where a page from disk may not write to the clipboard
    area.remove();
  }
};

const actions = (figure, label, named) => {
  const line = document.createElement("p");
  line.className = "actions";
  line.append(label);
  for (const [name, act] of Object.entries(named)) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
    button.setAttribute("aria-label", `${label} ${name}: ${figure.querySelector("[aria-label]").getAttribute("aria-label")}`);
    button.addEventListener("click", async () => {
      await act();
      button.textContent = `${name} ✓`;
    });
    line.append(button);
  }
  figure.querySelector(".wide").after(line);
};

const save = (address, name) => Object.assign(document.createElement("a"), { href: address, download: name }).click();

for (const figure of document.querySelectorAll("figure.table")) {
  const table = figure.querySelector("table");
  const forms = Object.entries(FORMS).map(([name, form]) => [name, () => copy(`${form(table).join("\n")}\n`)]);
  actions(figure, "Copy as", Object.fromEntries(forms));
}
for (const figure of document.querySelectorAll("figure.picture")) {
  const image = figure.querySelector("img");
  const name = image.alt.replace(/[^\w-]+/g, "-");
  actions(figure, "Save as", {
    ...(image.src.startsWith("data:image/svg") && { SVG: () => save(image.src, `${name}.svg`) }),
    PNG: () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 3 * image.naturalWidth, height: 3 * image.naturalHeight });
      const paper = canvas.getContext("2d");
      paper.fillStyle = "#fff";
      paper.fillRect(0, 0, canvas.width, canvas.height);
      paper.drawImage(image, 0, 0, canvas.width, canvas.height);
      save(canvas.toDataURL("image/png"), `${name}.png`);
    },
  });
}
