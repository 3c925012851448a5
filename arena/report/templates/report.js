"use strict";
// Draws the charts that are in sight first, and shows and hides policies.
(() => {
  const figures = arenaFigures.of(JSON.parse(document.getElementById("data").textContent));
  // For programs that change figures or parts of the page. `view` makes of a figure what is drawn.
  const charts = (window.arenaCharts = { figures, view: (name, figure) => figure, wire, redraw });
  const touch = matchMedia("(pointer: coarse)").matches;
  const hidden = new Set();

  const axis = {
    gridcolor: "#8888",
    zerolinecolor: "#8888",
    ticks: "",
    ticklabelstandoff: 4,
    automargin: true,
    fixedrange: touch,
    nticks: 6,
  };
  const base = {
    autosize: true,
    dragmode: touch ? false : "zoom",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12 },
    hovermode: "x",
    margin: { l: 44, r: 22, t: 8, b: 36 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    uirevision: "kept",
  };

  // The library writes powers of ten with styles of their own, which pages that are not one file forbid.
  const plain = !document.getElementById("plotly");
  function titled(given) {
    const title = { standoff: 8, ...given.title };
    const exponentformat = plain && given.exponentformat === "power" ? "e" : given.exponentformat;
    return { ...axis, ...given, title, exponentformat };
  }

  function layout(given) {
    const made = { ...base, ...given };
    for (const name of Object.keys(given)) {
      if (/^[xy]axis/.test(name)) made[name] = titled(given[name]);
    }
    return made;
  }

  function visible(trace) {
    return !(trace.meta && hidden.has(trace.meta.policy));
  }

  function drawing(place) {
    const figure = charts.view(place.dataset.chart, figures[place.dataset.chart]);
    const data = figure.data.map((trace) => ({ ...trace, visible: visible(trace) }));
    return [place, data, layout(figure.layout), { displayModeBar: false, responsive: true }];
  }
  function draw(place) {
    seen.unobserve(place);
    if (!place.drawn) put(place);
  }
  function redraw(name) {
    for (const place of places()) {
      if (place.drawn && (place.dataset.chart === name || !name)) put(place);
    }
  }
  // Draws a chart, or says why there is none.
  function put(place) {
    const words = arenaFigures.few(figures[place.dataset.chart] ?? { data: [] });
    if (place.classList.contains("none") !== Boolean(words)) place.data ? Plotly.purge(place) : place.replaceChildren();
    place.classList.toggle("none", words);
    if (words) place.textContent = words;
    place.drawn = words ? Promise.resolve() : Plotly.react(...drawing(place));
  }

  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) draw(entry.target);
      }
    },
    { rootMargin: "800px" },
  );
  const places = (root = document) => [...root.querySelectorAll("[data-chart]")];

  // In a page that is one file the library is compressed, and needs neither `eval` nor an address.
  async function inflate() {
    if (window.Plotly) return;
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const source = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    document.head.append(Object.assign(document.createElement("script"), { textContent: await new Response(source).text() }));
  }

  // The others when there is time, for who takes a picture of it all.
  const later = window.requestIdleCallback ?? ((task) => setTimeout(task, 100));
  function drawNext() {
    const place = places().find((found) => !found.drawn && found.offsetParent);
    if (!place) return;
    draw(place);
    later(drawNext);
  }
  inflate().then(() => {
    wire(document);
    addEventListener("beforeprint", () => places().filter((place) => !place.drawn).forEach(draw));
    later(drawNext);
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-policy]");
    if (button) toggle(button.dataset.policy);
    const cell = event.target.closest("[data-text]");
    if (cell) say(cell);
  });

  function toggle(policy) {
    hidden.has(policy) ? hidden.delete(policy) : hidden.add(policy);
    for (const button of document.querySelectorAll("button[data-policy]")) {
      if (button.dataset.policy === policy) button.setAttribute("aria-pressed", String(!hidden.has(policy)));
    }
    for (const place of places().filter((found) => found.data)) {
      Plotly.restyle(place, { visible: place.data.map(visible) });
    }
  }

  function say(cell) {
    document.querySelectorAll("td.chosen").forEach((other) => other.classList.remove("chosen"));
    cell.classList.add("chosen");
    document.querySelector(".said").textContent = cell.dataset.text;
  }

  function player(figure) {
    const canvas = figure.querySelector("canvas");
    const [button, slider, sheet] = ["button", "input", "img"].map((name) => figure.querySelector(name));
    const { pictures, columns, perSecond } = canvas.dataset;
    const { width, height } = canvas;
    let timer = null;

    function show() {
      const [row, column] = [Math.floor(slider.value / columns), slider.value % columns];
      canvas.getContext("2d").drawImage(sheet, column * width, row * height, width, height, 0, 0, width, height);
    }
    function pause() {
      clearInterval(timer);
      timer = null;
      button.classList.remove("playing");
    }
    function step() {
      if (Number(slider.value) >= pictures - 1) return pause();
      slider.value = Number(slider.value) + 1;
      show();
    }
    function play() {
      if (Number(slider.value) >= pictures - 1) slider.value = 0;
      timer = setInterval(step, 1000 / perSecond);
      button.classList.add("playing");
    }
    button.addEventListener("click", () => (timer ? pause() : play()));
    slider.addEventListener("input", () => { pause(); show(); });
    sheet.decode().then(show);
  }

  // Every chart as a table: the series, its points, and the ends of their intervals.
  function cell(value) {
    const text = value === null || value === undefined ? "" : String(value).replace(/<br>/g, "; ");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function table(figure) {
    const rows = [["series", "x", "y", "low", "high", "text"]];
    for (const trace of figure.data) {
      const bars = trace.error_y ?? trace.error_x;
      const values = trace.error_x ? trace.x : trace.y;
      trace.x.forEach((x, place) => {
        const above = bars?.array?.[place] ?? null;
        const below = (bars?.symmetric === false ? bars.arrayminus : bars?.array)?.[place] ?? null;
        const ends = above === null ? ["", ""] : [values[place] - below, values[place] + above];
        rows.push([trace.name ?? "", x, trace.y[place], ...ends, trace.text?.[place] ?? ""]);
      });
    }
    return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }
  function offer(place) {
    const name = place.dataset.chart;
    const link = Object.assign(document.createElement("button"), { type: "button", className: "csv", textContent: "CSV" });
    link.setAttribute("aria-label", `${name} as CSV`);
    link.addEventListener("click", () => {
      const address = URL.createObjectURL(new Blob([table(figures[name])], { type: "text/csv" }));
      const file = `${name.replace(/[^\w-]+/g, "-")}.csv`;
      Object.assign(document.createElement("a"), { href: address, download: file }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    });
    place.before(link);
  }

  // Brings new parts of the page to life.
  function wire(root) {
    root.querySelectorAll(".replay:has(canvas)").forEach(player);
    for (const button of root.querySelectorAll("button[data-policy]")) {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.policy)));
    }
    for (const place of places(root)) {
      offer(place);
      if (!place.drawn) seen.observe(place);
    }
  }

  const links = new Map([...document.querySelectorAll("nav li a")].map((link) => [link.hash.slice(1), link]));
  const reading = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) links.get(entry.target.id)?.classList.toggle("here", entry.isIntersecting);
    },
    { rootMargin: "-15% 0px -75% 0px" },
  );
  document.querySelectorAll("main section[id]").forEach((section) => reading.observe(section));
})();
