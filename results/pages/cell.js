// A cell opens: its trials, what its tests say, and their curves.
"use strict";

const opened = JSON.parse(document.getElementById("cells").textContent).cells;
const dialog = document.getElementById("cell");
const part = (selector) => dialog.querySelector(selector);
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6bb1", "#7f7f7f"];
const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
let chart = null;

/** An element with text and attributes. */
const made = (tag, text, attributes = {}) => {
  const element = Object.assign(document.createElement(tag), attributes);
  element.textContent = text;
  return element;
};

const showTrials = (cell) => {
  part("tbody").replaceChildren(...cell.trials.map((trial) => {
    const row = document.createElement("tr");
    const values = [trial.state, ...(trial.numbers ?? Array(6).fill("")), `trials/${trial.id}/attempts`];
    row.append(made("th", trial.seed, { scope: "row" }), ...values.map((text) => made("td", text)));
    return row;
  }));
};

/** The lines of a quantity: a colour for each seed of a cell; of several cells a colour each, and dashes for the seeds. */
const linesOf = (cells, quantity) => cells.flatMap((cell, place) =>
  cell.trials.filter((trial) => trial.curves?.[quantity]).map((trial, number) => {
    const [epochs, values] = trial.curves[quantity];
    return {
      label: `${cells.length > 1 ? `${cell.name}, ` : ""}seed ${trial.seed}`,
      at: new Map(epochs.map((epoch, index) => [epoch, values[index]])),
      stroke: COLOURS[(cells.length > 1 ? place : number) % COLOURS.length],
      dash: DASHES[cells.length > 1 ? number % DASHES.length : 0],
      width: 2,
    };
  }));

const draw = (cell) => {
  const quantity = part(".quantity").value;
  const rivals = [...part(".rival").selectedOptions].map((option) => opened[option.value]);
  const lines = linesOf([cell, ...rivals], quantity);
  const epochs = [...new Set(lines.flatMap((line) => [...line.at.keys()]))].sort((a, b) => a - b);
  const values = lines.map((line) => epochs.map((epoch) => line.at.get(epoch) ?? null));
  const positive = values.flat().every((value) => value === null || value > 0);
  part(".log").disabled = !positive;
  const ink = getComputedStyle(document.body).color;
  const axis = { stroke: ink, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884" } };
  chart?.destroy();
  chart = new uPlot({
    width: part(".chart").clientWidth,
    height: 280,
    legend: { show: false },
    scales: { x: { time: false }, y: { distr: positive && part(".log").checked ? 3 : 1 } },
    axes: [{ ...axis, label: "epoch", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, { ...axis, size: 64 }],
    series: [{}, ...lines],
    hooks: {
      setCursor: [(plot) => {
        const at = plot.cursor.idx;
        part(".reading").textContent = at == null ? "" : `epoch ${epochs[at]}: ` + lines
          .map((line, number) => [line.label, values[number][at], plot.series[number + 1].show])
          .filter(([, value, visible]) => visible && value !== null)
          .map(([label, value]) => `${label} ${value}`).join(", ");
      }],
    },
  }, [epochs, ...values], part(".chart"));
  part(".chart").setAttribute("aria-label", `${quantity} over epochs, ${lines.map((line) => line.label).join(", ")}`);
  const legend = part(".lines legend");
  part(".lines").replaceChildren(legend, ...lines.map((line, number) => {
    const label = made("label", ` ${line.label}`);
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: true });
    box.addEventListener("change", () => chart.setSeries(number + 1, { show: box.checked }));
    label.style.borderColor = line.stroke;
    label.style.borderBottomStyle = line.dash.length ? "dashed" : "solid";
    label.prepend(box);
    return label;
  }));
};

const open = (cell) => {
  part("h2").textContent = cell.name;
  part(".verdict").textContent = cell.verdict;
  showTrials(cell);
  const quantities = [...new Set(cell.trials.flatMap((trial) => Object.keys(trial.curves ?? {})))];
  part(".curves").hidden = !quantities.length;
  part(".without").hidden = quantities.length > 0;
  dialog.showModal();
  if (!quantities.length) return;
  const before = part(".quantity").value;
  part(".quantity").replaceChildren(...quantities.map((name) => made("option", name, { value: name })));
  part(".quantity").value = [before, "val_rsum", "loss"].find((name) => quantities.includes(name)) ?? quantities[0];
  const others = [...opened.entries()].filter(([, other]) => other !== cell && other.trials.some((trial) => trial.curves));
  part(".rival").replaceChildren(...others.map(([number, other]) => made("option", other.name, { value: number })));
  for (const control of [".quantity", ".rival", ".log"]) part(control).onchange = () => draw(cell);
  draw(cell);
};

// Cells become buttons once their table is seen: a panel that is not chosen may hold ten thousands of them.
const waiting = new Set(document.querySelectorAll("table:has([data-cell])"));
const ready = () => {
  for (const table of waiting) {
    if (table.closest("input:not(:checked) + label + .panel")) continue;
    waiting.delete(table);
    for (const entry of table.querySelectorAll("[data-cell]")) {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "opens" });
      button.append(...entry.childNodes);
      entry.append(button);
    }
  }
};
document.addEventListener("change", ready);
window.addEventListener("pageshow", ready); // a browser that comes back to a page restores what was chosen
document.addEventListener("click", ({ target }) => target.closest(".opens") && open(opened[target.closest("td").dataset.cell]));
ready();
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
window.addEventListener("resize", () => dialog.open && chart?.setSize({ width: part(".chart").clientWidth, height: 280 }));
