"use strict";
// The figures of a page, as the JSON that Plotly draws, from its numbers: of a run, of several, or of an experiment.
// Each has the name by which its place asks for it. A trace names its policy in `meta`, by which it is shown and hidden.
window.arenaFigures = (() => {
  const FEWEST = 3; // points of a chart
  const PLAIN = "#7a8594";
  const [BAND, BANDS] = [0.16, 0.6]; // opacity of a band, and of all bands of a figure together
  const [BAND_OF_MEAN, ONE_RUN] = [0.18, 0.35];
  const ABOVE = 0.3; // rows: forks, resets and gates are drawn beside the snapshot of their tick
  const VERDICTS = { better: "triangle-up", not_better: "triangle-down", open: "square-open" };
  const [CLOSE, FEW_RANKS, FEW_BARS] = [40, 12, 6]; // ranks without gaps; with a number each; bars that fill the picture
  const MOST_NAMED = 6; // values that stand below an axis, which may be as narrow as a phone

  const SHARE = { tickformat: ".0%", rangemode: "tozero" };
  const escaped = (text) => text.replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`); // Plotly takes tags for its own
  const rounded = (value, digits) => String(Number(value.toPrecision(digits)));
  const faded = (color, opacity) => `rgba(${[1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))},${opacity})`;
  const ends = (values) => [Math.min(...values), Math.max(...values)];

  function figure(data, { x = "ticks", y = "", xaxis, yaxis, ...layout }) {
    const axes = { xaxis: { title: { text: x }, ...xaxis }, yaxis: { title: { text: y }, ...yaxis } };
    return { data, layout: { ...axes, ...layout } };
  }

  // An axis for numbers of any size; Plotly would show a constant c on an axis from c - 1 to c + 1.
  function scale(values) {
    const found = new Set(values.filter((value) => value !== null));
    const level = found.size === 1 ? [...found][0] : 0;
    const range = level ? { range: [level - Math.abs(level) / 2, level + Math.abs(level) / 2] } : {};
    return { exponentformat: "power", ...range };
  }

  // An axis that holds all means; the intervals of few, which may be far wider, reach beyond it.
  function scaleOfMeans(traces) {
    const [low, high] = ends(traces.filter((trace) => trace.line.width).flatMap((trace) => trace.y));
    const room = 0.1 * (high - low) || 0.5;
    return { range: [low - room, high + room] };
  }

  // A line of a policy, or of all together (null); a mark where it has a single point.
  function line(name, x, y, color, more) {
    const hovertemplate = `${escaped(name ?? "")} %{y:.4g}<extra></extra>`.trimStart();
    const style = { mode: x.length > 1 ? "lines" : "markers", line: { color, width: 2 }, marker: { color, size: 6 } };
    return { type: "scatter", name: name ?? "all", meta: { policy: name }, x, y, hovertemplate, ...style, ...more };
  }

  // The interval around a line.
  function band(name, x, low, high, color, opacity) {
    const edge = { type: "scatter", mode: "lines", meta: { policy: name }, x, line: { width: 0 }, hoverinfo: "skip" };
    const filled = { fill: "tonexty", fillcolor: faded(color, opacity) };
    return [{ ...edge, name: `${name ?? "all"}, low`, y: low }, { ...edge, name: `${name ?? "all"}, high`, y: high, ...filled }];
  }

  // A curve and its band, fainter with more curves; there is no band if no part has several matches.
  function banded(name, { ticks, mean, low, high }, color, among = 1) {
    const wide = low.some((value, at) => value !== high[at]);
    const around = wide ? band(name, ticks, low, high, color, Math.min(BAND, BANDS / among)) : [];
    return [...around, line(name, ticks, mean, color)];
  }

  // A mean over runs, with its interval where several runs have a value.
  function meanCurve(name, { ticks, mean, low, high, count }, color) {
    const known = [...ticks.keys()].filter((at) => count[at] > 1);
    const [x, lows, highs] = [ticks, low, high].map((values) => known.map((at) => values[at]));
    return [...(known.length ? band(name, x, lows, highs, color, BAND_OF_MEAN) : []), line(name, ticks, mean, color)];
  }

  const bars = (color, errors) => ({ type: "data", ...errors, thickness: 1.2, width: 3, color });

  // Marks: tick, row, color, symbol and text of each.
  function marks(found) {
    const [x, y, color, symbol, text] = [0, 1, 2, 3, 4].map((column) => found.map((mark) => mark[column]));
    const marker = { size: 9, color, symbol, line: { color, width: 1.5 } };
    return { type: "scatter", mode: "markers", x, y, marker, text, hovertemplate: "%{text}<br>tick %{x}<extra></extra>" };
  }

  function forkText({ policy, source, options }) {
    const changes = Object.entries(options).map(([name, value]) => `${name} ${value}`).join(", ");
    return `${policy} is a copy of ${source}${changes && `<br>${changes}`}`;
  }

  // ---------------------------------------------------------------- a run

  function ofRun(page) {
    const found = {};
    const colors = Object.fromEntries(page.policies.map((policy) => [policy.name, policy.color]));
    const color = (player) => colors[player] ?? colors[player.split("@")[0]] ?? "#8a9099";
    for (const [name, learned] of Object.entries(page.learning)) {
      const curves = Object.entries(learned);
      if (!curves.length) continue;
      const yaxis = name === "won" ? SHARE : scale(curves.flatMap(([, one]) => [...one.low, ...one.high]));
      const traces = curves.flatMap(([policy, one]) => banded(policy, one, color(policy), curves.length));
      found[`learning-${name}`] = figure(traces, { yaxis });
    }
    evaluations(page.evaluations, color, found);
    for (const kind of ["results", "logged"]) {
      for (const [name, series] of Object.entries(page[kind])) {
        const traces = Object.entries(series).map(([policy, { ticks, values }]) =>
          line(policy || null, ticks, values, policy ? color(policy) : PLAIN));
        const yaxis = { nticks: 5, ...scale(traces.flatMap((trace) => trace.y)) };
        found[`${kind}-${name}`] = figure(traces, { x: "", yaxis, xaxis: { nticks: 5 } });
      }
    }
    page.lengths.forEach((row, number) => {
      const lows = row.edges.slice(0, -1);
      const width = row.edges[1] - row.edges[0];
      const bar = {
        type: "bar", x: lows.map((low) => low + (width - 1) / 2), y: row.counts, width,
        marker: { color: PLAIN, line: { width: 0 } }, customdata: lows.map((low, at) => [low, row.edges[at + 1] - 1]),
        hovertemplate: "%{customdata[0]} to %{customdata[1]} ticks: %{y} episodes<extra></extra>",
      };
      const xaxis = row.counts.length <= FEW_BARS ? { dtick: 1, range: [Math.max(0, lows[0] - 3), row.edges.at(-1) + 2] } : {};
      const layout = { x: "length, ticks", y: "episodes", xaxis, bargap: 0.04, hovermode: "closest" };
      found[`lengths-${number}`] = figure([bar], layout);
      if (row.over_time) found[`lengths-${number}-time`] = figure(banded(null, row.over_time, PLAIN), {});
    });
    const curves = Object.entries(page.standings?.curves ?? {});
    for (const scale of new Set(curves.map(([, curve]) => curve.scale))) {
      found[`strengths-${scale}`] = strengths(curves.filter(([, curve]) => curve.scale === scale), page.lineage, color);
    }
    for (const what of page.standings?.meta.length ? ["nash", "alpha_rank"] : []) {
      found[`meta-${what.replace("_", "-")}`] = meta(page.standings.meta, what, color);
    }
    if (page.exploitability.length) {
      const values = page.exploitability.map((one) => one.exploitability);
      const trace = line(null, page.exploitability.map((one) => one.tick), values, PLAIN, { mode: "lines+markers" });
      found.exploitability = figure([trace], { yaxis: { rangemode: "tozero", ...scale(values) } });
    }
    const { snapshots, forks, resets, gates } = page.lineage;
    if ([snapshots, forks, resets, gates].some((events) => events.length)) {
      found.lineage = lineage(page.lineage, page.summary.ticks, Object.keys(colors), color);
    }
    if (page.time) Object.assign(found, times(page.time));
    return found;
  }

  function evaluations(rows, color, found) {
    const trace = (mine, values, errors) =>
      line(mine[0].policy, mine.map((row) => row.ticks), values, color(mine[0].policy),
        { mode: "lines+markers", error_y: bars(color(mine[0].policy), errors) });
    const byPolicy = [...new Set(rows.map((row) => row.policy))].map((name) => rows.filter((row) => row.policy === name));
    const returns = byPolicy.map((mine) => trace(mine, mine.map((row) => row.return), { array: mine.map((row) => row.margin) }));
    const wins = byPolicy.map((mine) => mine.filter((row) => row.wins !== null)).filter((games) => games.length).map((games) => {
      const array = games.map((row) => row.won && row.won[1] - row.wins);
      const arrayminus = games.map((row) => row.won && row.wins - row.won[0]);
      return trace(games, games.map((row) => row.wins), { symmetric: false, array, arrayminus });
    });
    if (returns.length) found["evaluation-returns"] = figure(returns, { yaxis: { exponentformat: "power" } });
    if (wins.length) found["evaluation-wins"] = figure(wins, { yaxis: SHARE });
  }

  // Strength over ticks with its band; snapshots on it, and marks where a policy starts over.
  function strengths(curves, { forks, resets }, color) {
    const traces = curves.flatMap(([policy, { points }]) =>
      [...new Set(points.map((point) => point.curve))].sort((a, b) => a - b).flatMap((number) => {
        const mine = points.filter((point) => point.curve === number);
        const [ticks, mean, low, high] = ["tick", "elo", "low", "high"].map((what) => mine.map((point) => point[what]));
        return banded(policy, { ticks, mean, low, high }, color(policy), curves.length);
      }));
    for (const [policy, { points, snapshots }] of curves) {
      const found = Object.entries(snapshots).map(([name, { tick, elo }]) => {
        const shown = Math.round(elo);
        return [tick, elo, color(policy), "circle", `${name} ${shown < 0 ? "" : "+"}${shown}`];
      });
      const begun = new Map(forks.filter((fork) => fork.policy === policy).map((fork) => [fork.tick, ["diamond", forkText(fork)]]));
      for (const reset of resets) if (reset.policy === policy) begun.set(reset.tick, ["x", `${policy} started over`]);
      points.slice(1).forEach((after, at) => {
        if (points[at].curve === after.curve || !begun.has(after.tick)) return;
        found.push([after.tick, after.elo, color(policy), ...begun.get(after.tick)]);
      });
      if (found.length) traces.push({ ...marks(found), meta: { policy } });
    }
    return figure(traces, { yaxis: { title: { text: "Elo" } }, hovermode: "closest" });
  }

  // A measure of the meta-game, a player a line, the best on top.
  function meta(rows, what, color) {
    const upwards = [...rows].reverse();
    const values = upwards.map((row) => row[what]); // with the ends of their intervals
    const errors = { symmetric: false, array: values.map(([value, , high]) => high - value), arrayminus: values.map(([value, low]) => value - low) };
    const bar = {
      type: "bar", orientation: "h", x: values.map(([value]) => value), y: upwards.map((row) => row.player),
      marker: { color: upwards.map((row) => color(row.player)) }, error_x: bars(PLAIN, errors),
      hovertemplate: "%{y} %{x:.3f}<extra></extra>",
    };
    const axes = { x: "", xaxis: { ...SHARE, nticks: 5 }, yaxis: { showgrid: false, dtick: 1 } };
    return figure([bar], { ...axes, height: 50 + 24 * rows.length, hovermode: "closest", bargap: 0.35 });
  }

  // A line per policy over ticks: its snapshots on it, forks as lines from one to another.
  function lineage({ snapshots, forks, resets, gates }, ticks, policies, color) {
    const names = [...policies].reverse();
    const rows = new Map(names.map((name, place) => [name, place]));
    const plain = { type: "scatter", mode: "lines", hoverinfo: "skip" };
    const traces = policies.map((name) => ({ ...plain, x: [0, ticks], y: [rows.get(name), rows.get(name)], line: { color: faded(color(name), 0.55), width: 2 } }));
    for (const { tick, policy, source } of forks) {
      const style = { color: color(source), width: 1.4, dash: "dot" };
      traces.push({ ...plain, x: [tick, tick], y: [rows.get(source), rows.get(policy) + ABOVE], line: style });
    }
    const groups = [
      snapshots.map(({ name, policy, tick, dropped, matches }) => {
        const left = dropped === null ? "" : `, dropped at ${dropped}`;
        return [tick, rows.get(policy), color(policy), left ? "circle-open" : "circle", `${name}, ${matches} matches${left}`];
      }),
      forks.map((fork) => [fork.tick, rows.get(fork.policy) + ABOVE, color(fork.source), "diamond", forkText(fork)]),
      resets.map(({ tick, policy }) => [tick, rows.get(policy) + ABOVE, color(policy), "x", `${policy} started over`]),
      gates.map(({ tick, policy, against, verdict, text, games, llr }) => {
        const words = `${policy} against ${against}: ${text}<br>${games} games, log-likelihood ratio ${llr.toFixed(2)}`;
        return [tick, rows.get(policy) - ABOVE, PLAIN, VERDICTS[verdict] ?? "x", words];
      }),
    ];
    traces.push(...groups.filter((group) => group.length).map(marks));
    const yaxis = { tickvals: [...names.keys()].reverse(), ticktext: policies, range: [-0.7, names.length - 0.3], automargin: true, showgrid: false };
    return figure(traces, { yaxis, height: 90 + 38 * names.length, hovermode: "closest" });
  }

  // Where the time went, as shares: kinds of roles as bars from left to right, ranks as columns.
  function times({ activities, kinds, ranks }) {
    const shares = { range: [0, 1], tickformat: ".0%", nticks: 5 };
    const stacked = (rows, hover, placed, layout) =>
      figure(Object.entries(activities).map(([name, color]) => ({
        type: "bar", name, marker: { color, line: { width: 0 } }, hovertemplate: `${hover(name)}<extra></extra>`,
        ...placed(rows.map((row) => (row.seconds[name] ?? 0) / row.wall)),
      })), { barmode: "stack", hovermode: "closest", ...layout });
    const upwards = [...kinds].reverse();
    return {
      "time-kinds": stacked(upwards, (name) => `%{y}: ${name} %{x:.1%}`, (x) => ({ x, y: upwards.map((row) => row.name), orientation: "h" }),
        { x: "", xaxis: shares, yaxis: { showgrid: false, dtick: 1 }, height: 60 + 30 * kinds.length, bargap: 0.25 }),
      "time-ranks": stacked(ranks, (name) => `rank %{x}: ${name} %{y:.1%}`, (y) => ({ x: ranks.map((row) => Number(row.name)), y }),
        { x: "rank", xaxis: ranks.length <= FEW_RANKS ? { dtick: 1 } : {}, yaxis: { showgrid: false, ...shares }, height: 230, bargap: ranks.length <= CLOSE ? 0.25 : 0 }),
    };
  }

  // ---------------------------------------------------------------- several runs, and experiments

  function ofRuns({ groups, curves }) {
    const found = {};
    for (const [title, mine] of Object.entries(curves)) {
      const traces = mine.flatMap(({ group, runs, mean }) => {
        const { label, color, runs: folders } = groups[group];
        const thin = { mode: "lines", meta: { policy: label }, line: { color: faded(color, ONE_RUN), width: 1 }, hoverinfo: "skip" };
        const single = runs.flatMap(({ ticks, values }, at) => (ticks.length ? [line(`${label}, ${folders[at]}`, ticks, values, color, thin)] : []));
        return [...single, ...meanCurve(label, mean, color)];
      });
      const games = title.endsWith(": share of points");
      found[title] = figure(traces, { yaxis: games ? { tickformat: ".0%", range: [0, 1] } : { exponentformat: "power", ...scaleOfMeans(traces) } });
    }
    return found;
  }

  function ofExperiment({ combinations, curves, metric, trials, labels, logarithmic }) {
    const found = {};
    const traces = curves.flatMap((curve, at) => (curve.ticks.length ? meanCurve(combinations[at].name, curve, combinations[at].color) : []));
    if (traces.length) found.learning = figure(traces, { yaxis: { title: { text: metric.name }, ...scaleOfMeans(traces) }, hovermode: "closest" });
    const combination = new Map(combinations.flatMap((each) => each.trials.map((trial) => [trial, each])));
    const judged = trials.filter((row) => row.value !== null && combination.has(row.number));
    Object.entries(labels).forEach(([path, label]) => {
      const mine = judged.filter((row) => path in row.params);
      if (!mine.length) return;
      const values = mine.map((row) => row.params[path]);
      const numeric = values.every((value) => typeof value === "number");
      const points = {
        type: "scatter", mode: "markers", y: mine.map((row) => row.value),
        x: numeric ? values : values.map((value) => escaped(typeof value === "string" ? value : JSON.stringify(value))),
        marker: {
          color: mine.map((row) => combination.get(row.number).color),
          symbol: mine.map((row) => (row.state === "pruned" ? "x" : "circle")), size: 8, opacity: 0.8,
        },
        text: mine.map((row) => escaped(`${combination.get(row.number).name}, seed ${row.seed}${row.state === "pruned" ? ", pruned" : ""}`)),
        hovertemplate: "%{text}: %{y:.4g}<extra></extra>",
      };
      const [low, high] = numeric ? ends(values) : [0, 0];
      let xaxis = {};
      if (low > 0 && (logarithmic.includes(path) || high >= 20 * low)) {
        const known = [...new Set(values)].sort((a, b) => a - b); // a tick at each value if they are few
        xaxis = { type: "log", tickvals: known, ticktext: known.map((value) => rounded(value, 6)) };
        if (known.length > MOST_NAMED || logarithmic.includes(path)) // within two magnitudes with the ticks 2 and 5
          xaxis = { type: "log", dtick: high < 100 * low ? "D2" : 1, exponentformat: "power" };
      }
      found[`value-${label}`] = figure([points], { x: "", xaxis, hovermode: "closest" });
    });
    return found;
  }

  function of(page) {
    const found = page.learning ? ofRun(page) : page.combinations ? ofExperiment(page) : page.curves ? ofRuns(page) : {};
    return Object.fromEntries(Object.entries(found).map(([name, one]) => [name.replace(/\r\n?/g, "\n"), one])); // as HTML has it
  }

  // The words that stand in place of a figure with fewer than three points in each of its traces; empty: it is drawn.
  function few({ data }) {
    const points = data.map((trace) => trace.x.map((x, at) => [x, trace.y[at]]).filter(([x, y]) => x !== null && y !== null));
    if (points.some((one) => one.length >= FEWEST)) return "";
    const said = data.flatMap(({ type, name, hoverinfo }, at) => (type !== "scatter" || !name || hoverinfo === "skip" ? []
      : points[at].filter(([x]) => typeof x === "number").map(([x, y]) => `${name} ${rounded(y, 4)} at ${rounded(x, 6)}`)));
    return `No chart of fewer than three points${said.length ? `: ${said.join("; ")}` : ""}.`;
  }

  return { of, few };
})();
