// Parallel coordinates: an axis per option and one for the result, a line per trial; values are chosen on the axes.
const [SPACE, HEIGHT, TOP, BOTTOM, SIDE] = [130, 300, 34, 16, 56];
const FEW = 6; // values that stand beside an axis
const SVG = "http://www.w3.org/2000/svg";
const chosen = new Map(); // by the label of an axis, the shares of it between which lines are chosen: [low, high]

function make(parent, name, attributes = {}, words = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = words;
  parent.append(element);
  return element;
}

// An axis, logarithmic where its numbers span magnitudes: where a value is on it, from 0 at the bottom to 1, and the
// words that stand beside it. Values that are no numbers become their places.
function scaled({ label, values }) {
  let known = [...new Set(values.filter((value) => value !== null))];
  let marks = [];
  if (known.some((value) => typeof value !== "number")) {
    const texts = [...new Set(known.map(worded))];
    values = values.map((value) => (value === null ? null : texts.indexOf(worded(value))));
    known = [...texts.keys()];
    marks = [...texts.entries()];
  } else if (known.length <= FEW) marks = known.map((value) => [value, text(value)]);
  const log = Math.min(...known) > 0 && Math.max(...known) >= 20 * Math.min(...known);
  const level = (value) => (log ? Math.log10(value) : value);
  const [low, high] = [Math.min(...known.map(level)), Math.max(...known.map(level))];
  const share = (value) => (high > low ? (level(value) - low) / (high - low) : 0.5);
  if (!marks.length && known.length) {
    const places = [0, 1, 2, 3, 4].map((place) => low + ((high - low) * place) / 4);
    marks = places.map((place) => (log ? 10 ** place : place)).map((value) => [value, text(value)]);
  }
  return { label, values, share, marks };
}
const worded = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// What varies against the result, an axis each and a line for each trial that has one; the last is the result.
function parallel({ combinations, metric, trials, labels }) {
  const names = new Map(combinations.flatMap((one) => one.trials.map((trial) => [trial, one.name])));
  const rows = trials.filter((row) => row.value !== null && row.state !== "error");
  const axis = (label, value) => ({ label, values: rows.map(value) });
  const axes = Object.entries(labels).map(([path, label]) => axis(label, (row) => row.params[path] ?? null));
  if (rows.some((row) => row.variant)) axes.unshift(axis("variant", (row) => row.variant));
  axes.push(axis(metric.name, (row) => row.value));
  return { axes, trials: rows.map((row) => row.number), names: rows.map((row) => names.get(row.number) ?? ""), better: metric.mode };
}

function draw(svg) {
  const data = parallel(window.arenaCharts.data);
  const axes = data.axes.map(scaled);
  const width = Math.max(svg.parentElement.clientWidth - 4, 2 * SIDE + SPACE * (axes.length - 1));
  const step = axes.length > 1 ? (width - 2 * SIDE) / (axes.length - 1) : 0;
  const inner = HEIGHT - TOP - BOTTOM;
  const said = svg.closest("section").querySelector(".said");
  const at = (axis, value) => HEIGHT - BOTTOM - axis.share(value) * inner;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", HEIGHT);

  const result = axes.at(-1);
  const lines = data.trials.map((trial, row) => {
    const points = axes.flatMap((axis, place) =>
      axis.values[row] === null ? [] : [[SIDE + place * step, at(axis, axis.values[row])]],
    );
    const line = make(svg, "polyline", { points: points.map((point) => point.join(",")).join(" ") });
    const share = result.share(result.values[row]);
    const good = Math.round(100 * (data.better === "max" ? share : 1 - share));
    line.style.stroke = `color-mix(in oklab, var(--over) ${good}%, var(--under))`;
    const words = `trial ${trial}${data.names[row] ? `, ${data.names[row]}` : ""}: ${text(result.values[row])}`;
    make(line, "title", {}, words);
    line.addEventListener("pointerenter", () => (said.textContent = words));
    return line;
  });

  const brushes = axes.map((axis, place) => {
    const group = make(svg, "g", { transform: `translate(${SIDE + place * step} 0)`, tabindex: 0, role: "group" });
    group.setAttribute("aria-label", `${axis.label}: arrow keys choose values`);
    make(group, "line", { y1: TOP, y2: HEIGHT - BOTTOM });
    const [anchor, x] = place === 0 ? ["start", -SIDE + 4] : axis === result ? ["end", SIDE - 4] : ["middle", 0];
    const title = make(group, "text", { x, y: 14, "text-anchor": anchor, class: "title" }, short(axis.label, step / 7));
    make(title, "title", {}, axis.label);
    for (const [value, words] of axis.marks) {
      make(group, "text", { x: 6, y: at(axis, value) + 4 }, short(words, step / 8));
    }
    const window_ = make(group, "rect", { x: -7, width: 14, class: "chosen" });
    const area = make(group, "rect", { x: -18, y: TOP - 6, width: 36, height: inner + 12, class: "area" });
    const share = (event) => {
      const box = svg.getBoundingClientRect();
      const y = ((event.clientY - box.top) / box.height) * HEIGHT;
      return Math.min(1, Math.max(0, (HEIGHT - BOTTOM - y) / inner));
    };
    let from = null;
    area.addEventListener("pointerdown", (event) => {
      from = share(event);
      area.setPointerCapture(event.pointerId);
    });
    area.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const to = share(event);
      if (Math.abs(to - from) > 0.01) choose(axis, Math.min(from, to), Math.max(from, to));
    });
    area.addEventListener("pointerup", (event) => {
      if (from !== null && Math.abs(share(event) - from) <= 0.01) choose(axis);
      from = null;
    });
    area.addEventListener("pointercancel", () => (from = null));
    group.addEventListener("keydown", (event) => {
      const [low, high] = chosen.get(axis.label) ?? [0.75, 1];
      const by = { ArrowUp: [0.05, 0.05], ArrowDown: [-0.05, -0.05], "+": [-0.05, 0.05], "-": [0.05, -0.05] }[event.key];
      if (event.key === "Escape") choose(axis);
      else if (!by) return;
      else if (!chosen.has(axis.label)) choose(axis, low, high);
      else if (low + by[0] < high + by[1]) choose(axis, Math.max(0, low + by[0]), Math.min(1, high + by[1]));
      event.preventDefault();
    });
    return window_;
  });

  function choose(axis, low, high) {
    low === undefined ? chosen.delete(axis.label) : chosen.set(axis.label, [low, high]);
    show();
  }

  function show(quietly = false) {
    const isIn = axes.map((axis) => {
      const [low, high] = chosen.get(axis.label) ?? [-1, 2];
      return axis.values.map((value) => value === null ? !chosen.has(axis.label) : axis.share(value) >= low - 1e-9 && axis.share(value) <= high + 1e-9);
    });
    const kept = data.trials.map((_, row) => isIn.every((axis) => axis[row]));
    lines.forEach((line, row) => line.classList.toggle("faded", !kept[row]));
    axes.forEach((axis, place) => {
      const [low, high] = chosen.get(axis.label) ?? [0, 0];
      brushes[place].setAttribute("y", HEIGHT - BOTTOM - high * inner);
      brushes[place].setAttribute("height", (high - low) * inner);
    });
    const anything = [...chosen.keys()].some((label) => axes.some((axis) => axis.label === label));
    const rows = new Map(data.trials.map((trial, row) => [String(trial), kept[row]]));
    for (const row of document.querySelectorAll("tr[data-trial]")) {
      row.classList.toggle("faded", anything && !rows.get(row.dataset.trial));
    }
    if (quietly) return;
    const numbers = result.values.filter((_, row) => kept[row]);
    const best = numbers.length ? `; the best of them: ${text(Math[data.better](...numbers))}` : "";
    said.textContent = anything ? `${numbers.length} of ${data.trials.length} trials are chosen${best}` : "";
  }
  show(!chosen.size);
}

function text(value) {
  return String(Number(value.toPrecision(4)));
}
function short(words, most) {
  return words.length > most ? `${words.slice(0, Math.max(3, most - 1))}…` : words;
}

function begin() {
  const svg = document.querySelector("svg.parallel");
  if (svg) draw(svg);
}
addEventListener("resize", begin);
document.addEventListener("renewed", (event) => {
  if (event.detail.id === "parallel" || event.detail.id === "trials") begin();
});

// A trial that is pruned does not go on.
document.addEventListener("submit", (event) => {
  const { value, ariaLabel } = event.submitter ?? {};
  if (value === "prune" && !confirm(`${ariaLabel} for good?`)) event.preventDefault();
});
