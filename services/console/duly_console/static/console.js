// The console works without this script. It adds live plots, the key "/", and a tick for what refreshes itself.
"use strict";
(() => {
  const EVERY = 2000; // ms, while the page is visible
  const KEPT = 150; // points of a plot
  const WINDOW = 300; // seconds that a plot shows; its times are UTC, as those of the pages
  document.documentElement.classList.add("with-js");

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest && event.target.closest("input, textarea, select");
    const search = document.getElementById("search");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });
  document.querySelectorAll("select[data-submits]").forEach((select) => {
    select.addEventListener("change", () => select.form.submit());
  });

  const live = document.getElementById("live");
  const SLOW = 5; // ticks from one refresh of a larger part to the next
  const refreshed = () => document.querySelector('[hx-trigger^="duly:"]');
  let running = null, ticks = 0;
  const tick = () => {
    if (document.hidden) return;
    if (refreshed() && ticks > 0) {
      document.body.dispatchEvent(new CustomEvent("duly:tick"));
      if (ticks % SLOW === 0) document.body.dispatchEvent(new CustomEvent("duly:slow-tick"));
    }
    ticks += 1;
    if (live && !live.dataset.failed) poll();
  };
  const startOrStop = () => {
    if (document.hidden && running) { clearInterval(running); running = null; }
    if (!document.hidden && !running && (live || refreshed())) { running = setInterval(tick, EVERY); tick(); }
  };
  document.addEventListener("visibilitychange", startOrStop);
  document.addEventListener("htmx:after:request", (event) => {
    const response = event.detail && event.detail.ctx && event.detail.ctx.response;
    if (response && response.status === 401) location.reload();
  });

  if (!live) { startOrStop(); return; }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const COLOURS = { a: "--accent", b: "--good", c: "--bad" };
  const short = (value) => value >= 1e6 ? (value / 1e6).toFixed(1) + " M" : value >= 1e4 ? Math.round(value / 1e3) + " k" : value >= 100 || Number.isInteger(value) ? Math.round(value).toString() : value.toPrecision(2);
  const seconds = (value) => value >= 3600 ? (value / 3600).toFixed(1) + " h" : value >= 60 ? (value / 60).toFixed(1) + " min" : value >= 1 ? value.toFixed(1) + " s" : Math.round(value * 1000) + " ms";
  const plots = [...live.querySelectorAll(".plot")].map((element) => {
    const series = [...element.querySelectorAll("[data-series]")].map((each) => ({ name: each.dataset.series, mark: each.dataset.mark, shown: each.querySelector("b") }));
    const canvas = element.querySelector(".canvas");
    const write = element.dataset.unit === "s" ? seconds : short;
    const axis = () => ({ stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" });
    const plot = new uPlot({
      width: Math.max(200, canvas.clientWidth), height: 170, legend: { show: false }, cursor: { show: false },
      scales: { x: { range: (_u, _low, high) => [(high || Date.now() / 1000) - WINDOW, high || Date.now() / 1000] }, y: { range: (_u, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis(), space: 80, values: (_u, values) => values.map((value) => new Date(value * 1000).toISOString().slice(11, 19)) }, { ...axis(), size: 66, values: (_u, values) => values.map((value) => value === 0 ? "0" : write(value)) }],
      series: [{}, ...series.map((each) => ({ stroke: colour(COLOURS[each.mark]), width: 2, points: { show: false }, spanGaps: true }))],
    }, [[], ...series.map(() => [])], canvas);
    return { plot, series, canvas, write, data: [[], ...series.map(() => [])] };
  });
  new ResizeObserver(() => plots.forEach(({ plot, canvas }) => plot.setSize({ width: Math.max(200, canvas.clientWidth), height: 170 }))).observe(live);

  let before = null, busy = false, notBefore = 0;
  const rate = (name, now) => {
    // counters of Postgres, which writes them about once a second: the rate is that of the last ten seconds
    const past = before.find((each) => now.at - each.at <= 10) || before[0];
    if (!past || past === now || now[name] === null || past[name] === null || now[name] < past[name]) return null;
    return (now[name] - past[name]) / Math.max(0.001, now.at - past.at);
  };
  async function poll() {
    // a large installation takes longer to count: it is asked less often, for a tenth of the time at most
    const started = performance.now();
    if (busy || started < notBefore) return;
    busy = true;
    try {
      const answer = await fetch("/live", { headers: { accept: "application/json" } });
      if (answer.status === 401) { live.dataset.failed = "1"; location.reload(); return; }
      if (!answer.ok) throw new Error(answer.status);
      const now = await answer.json();
      before = (before || []).filter((each) => now.at - each.at <= 12);
      before.push(now);
      now.scheduled_rate = rate("scheduled", now);
      now.ended_rate = rate("ended", now);
      for (const { plot, series, data, write } of plots) {
        data[0].push(now.at);
        series.forEach((each, place) => {
          const value = now[each.name] ?? null;
          data[place + 1].push(value);
          each.shown.textContent = value === null ? "–" : write(value);
        });
        if (data[0].length > KEPT) data.forEach((values) => values.shift());
        plot.setData(data);
      }
      live.classList.remove("stale");
    } catch { live.classList.add("stale"); } finally { busy = false; notBefore = started + (performance.now() - started) * 10 - EVERY / 2; }
  }
  startOrStop();
})();
