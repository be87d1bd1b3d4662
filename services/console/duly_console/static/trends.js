// The charts of a day: they are drawn from one answer, which is asked for again each minute while the page is visible. A failed
// answer leaves what is seen, and says since when it is old.
"use strict";
(() => {
  const section = document.getElementById("trends");
  if (!section) return;
  const EVERY = 60000; // ms
  const RETRY = 10000; // ms after a failed answer
  const HEIGHT = 170;
  const COLOURS = { a: "--accent", b: "--good", c: "--bad", d: "--quiet" };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const thousands = (value) => value.toString().replace(/\B(?=(\d{3})+$)/g, "\u202f"), tenths = (value) => value.toFixed(1).replace(/\.0$/, "");
  const count = (value) => value >= 1e6 ? tenths(value / 1e6) + " M" : value >= 1e5 ? Math.round(value / 1e3) + " k" : value >= 100 || Number.isInteger(value) ? thousands(Math.round(value)) : value.toPrecision(2);
  const seconds = (value) => value >= 3600 ? tenths(value / 3600) + " h" : value >= 60 ? tenths(value / 60) + " min" : value >= 1 ? tenths(value) + " s" : Math.round(value * 1000) + " ms";
  const WRITERS = { s: seconds, "%": (value) => `${value >= 99.95 || value < 0.05 ? Math.round(value) : tenths(value)} %` };
  const isWeek = section.dataset.range === "7d";
  const when = (at) => { const text = new Date(at * 1000).toISOString(); return isWeek ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(11, 16); };
  const said = document.getElementById("trend-at");
  let told = null;

  // A line at each change, and at the objective.
  const lines = (chart) => (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = 1;
    ctx.setLineDash([4, 4]);
    ctx.strokeStyle = colour("--quiet");
    for (const mark of told.marks) {
      const x = plot.valToPos(mark.at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
    }
    const level = chart === "lateness" ? told.on_time_within : chart === "on-time" ? told.objective : null;
    if (level !== null) {
      const y = plot.valToPos(level, "y", true);
      if (y >= bbox.top && y <= bbox.top + bbox.height) {
        ctx.strokeStyle = colour("--warn");
        ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
      }
    }
    ctx.restore();
  };

  const charts = [...section.querySelectorAll("[data-chart]")].map((element) => {
    const series = [...element.querySelectorAll("[data-series]")].map((each) => ({ name: each.dataset.series, mark: each.querySelector(".swatch").classList[1], shown: each.querySelector("b") }));
    const canvas = element.querySelector(".canvas");
    const write = WRITERS[element.dataset.unit] || count;
    const isShare = element.dataset.unit === "%";
    const axis = () => ({ stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" });
    const show = (plot) => {
      const index = plot.cursor.idx;
      const last = (values) => { let place = values.length - 1; while (place > 0 && values[place] === null) place -= 1; return values[place]; };
      series.forEach((each, place) => { const values = plot.data[place + 1], value = index === null || index === undefined ? last(values) : values[index]; each.shown.textContent = value === null || value === undefined ? "–" : write(value); });
      const at = index === null || index === undefined ? undefined : plot.data[0][index];
      if (at !== undefined) say(`${when(at)} UTC${near(at)}`);
      else sayAge();
    };
    const plot = new uPlot({
      width: Math.max(200, canvas.clientWidth), height: HEIGHT, legend: { show: false },
      cursor: { y: false, drag: { setScale: false, x: false, y: false }, sync: { key: "trends" }, points: { show: true } },
      scales: { x: { time: true, range: () => told ? [told.since, told.until] : [0, 1] }, y: { range: isShare ? () => [0, 100] : (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis(), space: 70, values: (_plot, values) => values.map(when) }, { ...axis(), size: 66, values: (_plot, values) => values.map((value) => value === 0 ? "0" : write(value)) }],
      series: [{}, ...series.map((each) => ({ stroke: colour(COLOURS[each.mark]), width: each.mark === "d" ? 1 : 2, dash: each.mark === "d" ? [6, 4] : undefined, points: { show: (plot) => plot.data[0].length < 3 } }))],
      hooks: { setCursor: [show], draw: [(plot) => { if (told) lines(element.dataset.chart)(plot); }] },
    }, [[], ...series.map(() => [])], canvas);
    return { plot, series, canvas, show };
  });
  new ResizeObserver(() => charts.forEach(({ plot, canvas }) => plot.setSize({ width: Math.max(200, canvas.clientWidth), height: HEIGHT }))).observe(section);

  const say = (text) => { if (said.textContent !== text) said.textContent = text; };
  const sayAge = () => say(told ? `as of ${new Date(told.at * 1000).toISOString().slice(11, 19)} UTC${isOld ? ", no answer since" : ""}` : isOld ? "No answer yet." : "\u00a0");
  const near = (at) => told.marks.filter((mark) => Math.abs(mark.at - at) <= told.step).slice(0, 2).map((mark) => ` · ${mark.text}${mark.by ? ` by ${mark.by}` : ""}`).join("");

  // A point for each minute or hour: one without an answer is a gap.
  const columns = (names) => {
    const byTime = new Map(told.points.map((each) => [Math.round(each.at / told.step), each]));
    const first = Math.ceil(told.since / told.step), last = Math.floor(told.until / told.step) - 1;
    const found = [[], ...names.map(() => [])];
    for (let place = first; place <= last; place += 1) {
      const point = byTime.get(place);
      found[0].push(place * told.step);
      names.forEach((name, index) => found[index + 1].push(point ? point[name] : null));
    }
    return found;
  };
  const draw = () => {
    charts.forEach(({ plot, series, show }) => { plot.setData(columns(series.map((each) => each.name))); show(plot); });
    section.querySelector(".objective").textContent = `within ${seconds(told.on_time_within)}; objective ${Number(told.objective.toFixed(3))} %`;
    const list = section.querySelector(".trend-marks"), items = list.querySelector("ul");
    list.hidden = told.marks.length === 0;
    list.querySelector("summary").textContent = told.marks.length === 1 ? "1 change in this time" : `${told.marks.length} changes in this time`;
    items.replaceChildren(...[...told.marks].reverse().map((mark) => {
      const item = document.createElement("li");
      item.textContent = `${when(mark.at)} ${mark.text}${mark.by ? ` by ${mark.by}` : ""}`;
      return item;
    }));
    sayAge();
  };

  let isOld = false, timer = null;
  const ask = async () => {
    clearTimeout(timer);
    timer = null;
    if (document.hidden) return;
    let good = false;
    try {
      const address = `/trends?${new URLSearchParams({ range: section.dataset.range, lambda: section.dataset.lambda })}`;
      const answer = await fetch(address, { headers: { accept: "application/json" }, signal: AbortSignal.timeout(Number(document.body.dataset.deadline)) });
      if (answer.status === 401) { location.reload(); return; }
      if (answer.status === 200) {
        const next = await answer.json();
        if (Array.isArray(next.points) && Array.isArray(next.marks) && Number.isFinite(next.at)) { told = next; good = true; }
      }
    } catch { /* it is asked for again */ }
    isOld = !good;
    section.classList.toggle("stale", isOld);
    if (good) draw(); else sayAge();
    timer = setTimeout(ask, good ? EVERY : RETRY);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && timer === null) ask(); });
  ask();
})();
