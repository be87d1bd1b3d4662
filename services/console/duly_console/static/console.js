// The console works without this script. It adds parts of pages that refresh themselves, live plots, and
// pages of errors that try again. Nothing that is seen is replaced by a failed, partial or late answer.
"use strict";
(() => {
  const KEPT = 150; // points of a plot
  const WINDOW = 300; // seconds that a plot shows; its times are UTC, as those of the pages
  document.documentElement.classList.add("with-js");

  document.querySelectorAll("select[data-submits]").forEach((select) => {
    select.addEventListener("change", () => select.form.submit());
  });

  // Relative times go on between two answers, by the console's clock.
  const clock = { server: Date.parse(document.body.dataset.answeredAt), here: Date.now() };
  const serverNow = () => clock.server + Date.now() - clock.here;
  const answered = (at) => Object.assign(clock, { server: at, here: Date.now() });
  const span = (seconds) => {
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]], found = [];
    let left = Math.floor(seconds);
    for (const [size, unit] of units) {
      if (left >= size && found.length < 2 && !(size === 1 && seconds >= 3600)) found.push(`${Math.floor(left / size)} ${unit}`);
      left %= size;
    }
    return found.join(" ");
  };
  const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const age = () => {
    if (document.hidden) return;
    const now = serverNow();
    document.querySelectorAll("time[data-ago]").forEach((each) => {
      const seconds = (now - Date.parse(each.dateTime)) / 1000;
      if (!Number.isNaN(seconds)) write(each, Math.abs(seconds) < 1 ? "now" : seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`);
    });
    const asOf = document.getElementById("as-of");
    if (!asOf) return;
    const at = Math.min(...(parts.size ? [...parts.values()].map((part) => part.answeredAt) : [clock.server]));
    const [time, old] = asOf.querySelectorAll("time, span");
    time.dateTime = new Date(at).toISOString();
    write(time, time.dateTime.slice(11, 19));
    write(old, now - at < 15000 ? "" : ` (${span((now - at) / 1000)} ago)`);
  };

  // A part of a page is asked for again and again while the page is visible. Only a good answer replaces what is seen.
  // Without one a bar tells since when, what may have changed is dimmed, and asking goes on.
  const setting = (name) => Number(document.body.dataset[name]);
  const every = () => setting("tick"); // ms from one look at what is due to the next
  const pause = () => Math.min(every() / 2, 1000); // ms at least from one request for a part to the next
  const deadline = () => setting("deadline"); // ms: a later answer is dropped
  const PATIENCE = 5000; // ms without an answer until the bar tells
  const SLOW = 5; // ticks from one refresh of a larger part to the next; the most ticks until a failed one is repeated
  const LONGEST = 30000; // ms from one refresh to the next, however long answers take
  const REASONS = {
    silent: "The console cannot be reached.",
    late: "The console does not answer in time.",
    cut: "The answer was not complete.",
    other: "The answer was another page.",
    lacking: "The answer lacks a part of the page.",
  };
  const TRIGGERED = '[hx-trigger^="duly:"]';
  const bar = document.getElementById("no-answer");
  const parts = new Map();

  class Part {
    constructor(ticks, elements, ask) {
      this.ticks = ticks; // from one refresh to the next
      this.elements = elements; // returns those that show its values
      this.ask = ask; // sends a request for a ticket, and tells `succeed` or `fail`
      this.answeredAt = Date.parse(document.body.dataset.answeredAt); // by the console's clock, as all instants of the page
      this.seenAt = Date.now(); // the same by the browser's clock
      this.ticket = 0;
      this.startedAt = null; // by a clock that never steps; null: no request is under way
      this.notBefore = performance.now() + pause();
      this.failures = 0;
      this.isDue = false;
      this.isChanged = false; // a stream told so
      this.shownAt = performance.now();
      this.isOld = false; // its values may have changed: they are dimmed
      this.isSilent = false; // it was asked for, and no good answer came: the bar tells
    }

    isTime(isOnTime) {
      return this.startedAt === null && performance.now() >= this.notBefore && (this.isDue || this.isOld || (isOnTime && ticks % this.ticks === 0)
        || (this.isChanged && performance.now() >= this.changesFrom()));
    }

    changesFrom() { return this.shownAt + (this.ticks - 1) * pause(); } // a larger part: not each second

    begin() {
      const ticket = ++this.ticket;
      this.isDue = this.isChanged = false;
      this.startedAt = performance.now();
      this.startedOnClock = Date.now();
      this.abort = null;
      this.timers = [
        setTimeout(() => this.tellFailed(REASONS.late), PATIENCE),
        setTimeout(() => { this.fail(ticket, REASONS.late); if (this.abort) this.abort(); }, deadline()),
      ];
      this.ask(ticket);
    }

    awaits(ticket) {
      if (this.ticket !== ticket || this.startedAt === null) return false;
      // timers are late in a machine that slept, and one of the clocks may stand still meanwhile
      return Math.max(performance.now() - this.startedAt, Date.now() - this.startedOnClock) < deadline();
    }

    end() {
      const took = performance.now() - this.startedAt;
      this.timers.forEach(clearTimeout);
      this.startedAt = null;
      return took;
    }

    succeed(ticket, answeredAt) {
      if (this.ticket !== ticket || this.startedAt === null) return;
      const took = this.end();
      // a large installation takes longer to count: it is asked less often
      this.notBefore = performance.now() - took + Math.min(took * 10, LONGEST) - every() / 2;
      this.answeredAt = answeredAt;
      this.seenAt = Date.now();
      this.shownAt = performance.now();
      this.failures = 0;
      this.isOld = this.isSilent = false;
      answered(answeredAt);
      show();
      age();
    }

    // A good answer that is not shown: it would take away what is selected, or what is typed. It is asked for again.
    hold(ticket) {
      if (this.ticket !== ticket || this.startedAt === null) return;
      this.end();
      this.notBefore = performance.now() + every() / 2;
      this.failures = 0;
      this.isDue = true;
      this.isSilent = false;
      show();
    }

    isInUse() {
      const chosen = getSelection(), has = (node) => node && this.elements().some((each) => each.contains(node));
      if (chosen && !chosen.isCollapsed && (has(chosen.anchorNode) || has(chosen.focusNode))) return true;
      return this.elements().some((each) => [...each.querySelectorAll("input:not([type=hidden]), textarea")].some((field) => field.value !== field.defaultValue));
    }

    fail(ticket, reason) {
      if (this.ticket !== ticket || this.startedAt === null) return;
      this.end();
      this.failures += 1;
      this.notBefore = performance.now() + every() * (Math.min(2 ** (this.failures - 1), SLOW) * (0.75 + Math.random() / 2) - 0.5);
      this.tellFailed(reason);
    }

    tellFailed(reason) {
      if (![...parts.values()].some((each) => each.isSilent)) {
        // the first part without an answer: the others may be old, too, until they have one
        parts.forEach((each) => { each.isOld = true; if (each !== this) each.notBefore = 0; });
      }
      this.isOld = this.isSilent = true;
      bar.querySelector(".why").textContent = reason;
      show();
    }
  }

  const show = () => {
    const all = [...parts.values()], told = bar.querySelector("[role=status]");
    all.forEach((part) => part.elements().forEach((element) => element.classList.toggle("stale", part.isOld)));
    if (!all.some((part) => part.isSilent)) {
      delete bar.dataset.since;
      told.replaceChildren();
      bar.querySelector(".why").textContent = "";
      return;
    }
    const since = new Date(Math.min(...all.filter((part) => part.isOld).map((part) => part.answeredAt))).toISOString();
    if (bar.dataset.since === since) return; // so that screen readers say it once
    bar.dataset.since = since;
    const time = document.createElement("time"), today = new Date().toISOString().slice(0, 10);
    time.dateTime = since;
    time.textContent = `${since.startsWith(today) ? "" : `${since.slice(0, 10)} `}${since.slice(11, 19)}`;
    told.replaceChildren("No answer since ", time, " UTC. What is dimmed may have changed.");
  };

  const selectors = (element) => [element.getAttribute("hx-select"), ...(element.getAttribute("hx-select-oob") || "").split(",").map((each) => each.split(":")[0])].filter(Boolean);
  const findParts = () => {
    const found = new Map([...document.querySelectorAll(TRIGGERED)].map((element) => [element.id, element]));
    found.forEach((element, id) => {
      if (parts.has(id)) return;
      const part = new Part(
        element.getAttribute("hx-trigger") === "duly:slow-tick" ? SLOW : 1,
        () => part.selectors.flatMap((each) => [...document.querySelectorAll(each)]),
        () => { const now = document.getElementById(id); now.dispatchEvent(new CustomEvent(now.getAttribute("hx-trigger"))); },
      );
      part.selectors = selectors(element);
      parts.set(id, part);
    });
    // what has come to its end is no longer refreshed: its last answer came without a trigger
    parts.forEach((part, id) => { if (part.selectors && !found.has(id)) { parts.delete(id); show(); } });
  };

  // htmx makes the requests and puts the answers in place; whether an answer is good is decided here.
  const place = (address) => { const url = new URL(address, location.href); return url.origin + url.pathname + url.search; };
  const parsed = (text) => new DOMParser().parseFromString(text, "text/html");
  const refusal = (status, text) => parsed(text).querySelector(".problem")?.textContent || `The console answered with status ${status}.`;
  const problemOf = (ctx) => {
    const { raw } = ctx.response, text = ctx.text.trimEnd(), isPart = Boolean(ctx.part);
    if (raw.status !== 200) return refusal(raw.status, text);
    if (place(raw.url) !== place(ctx.request.action)) return REASONS.other;
    if (!text.endsWith(isPart ? "</html>" : `</${ctx.target.localName}>`)) return REASONS.cut;
    const page = parsed(text);
    if (!isPart) return page.getElementById(ctx.target.id) ? "" : REASONS.lacking;
    ctx.answeredAt = Date.parse(page.body.dataset.answeredAt);
    if (page.body.dataset.path !== document.body.dataset.path || Number.isNaN(ctx.answeredAt)) return REASONS.other;
    return ctx.part.selectors.every((each) => page.querySelector(each)) ? "" : REASONS.lacking;
  };
  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail, part = ctx.sourceElement.matches(TRIGGERED) && parts.get(ctx.sourceElement.id);
    if (!part) return;
    Object.assign(ctx, { part, ticket: part.ticket });
    ctx.request.timeout = 0; // the part has a deadline of its own
    part.abort = ctx.request.abort;
  });
  // What has the focus keeps it, though rows change their places, or are made anew.
  const keyOf = (element) => element?.id || element?.getAttribute?.("href") || (element?.matches?.("[data-copies]") && element.getAttribute("aria-label")) || "";
  const focusAgain = (part, key) => {
    if (!key || keyOf(document.activeElement) === key) return;
    const found = part.elements().flatMap((each) => [...each.querySelectorAll("a[href], button, input, select, summary")]).find((each) => keyOf(each) === key);
    found?.focus({ preventScroll: true });
  };
  document.addEventListener("htmx:after:request", (event) => {
    const { ctx } = event.detail;
    if (ctx.part) ctx.opened = ctx.part.elements().flatMap((each) => [...each.querySelectorAll("details[id][open]")]).map((each) => each.id);
    if (ctx.part?.elements().some((each) => each.contains(document.activeElement))) ctx.focused = keyOf(document.activeElement);
    if (ctx.response.status === 401) { event.preventDefault(); location.reload(); return; } // which leads to the page to sign in at
    ctx.problem = ctx.part && !ctx.part.awaits(ctx.ticket) ? REASONS.late : problemOf(ctx);
    ctx.isHeld = Boolean(!ctx.problem && ctx.part?.isInUse());
    if (ctx.problem || ctx.isHeld) event.preventDefault();
  });
  document.addEventListener("htmx:finally:request", (event) => {
    const { ctx } = event.detail, isShown = ctx.status === "swapped";
    if (ctx.response?.status === 401) return;
    if (ctx.part) {
      if (isShown) { ctx.opened.forEach((id) => { const found = document.getElementById(id); if (found) found.open = true; }); focusAgain(ctx.part, ctx.focused); ctx.part.succeed(ctx.ticket, ctx.answeredAt); } else if (ctx.isHeld) ctx.part.hold(ctx.ticket); else ctx.part.fail(ctx.ticket, ctx.problem || REASONS.silent);
      return;
    }
    // a form that was sent in the background stays, with what was typed
    const form = ctx.sourceElement;
    if (!isShown) form.parentElement.querySelectorAll(":scope > .problem").forEach((each) => each.remove());
    if (isShown || !form.isConnected) return;
    const problem = document.createElement("p");
    problem.className = "problem";
    problem.setAttribute("role", "alert");
    problem.textContent = ctx.problem || REASONS.silent;
    form.before(problem);
  });

  age();
  setInterval(age, 1000);

  let next = null, ticks = 1, tickedAt = 0;
  // A stream tells that something has changed: what is shown is asked for at once, and not with a later tick. It has no values.
  // Without it the ticks go on as ever. It is open while the page is seen: browsers have few connections to a console.
  const SILENT = 45000; // ms without a sign of life, which comes every 15 s: the stream is dead
  const stream = { source: null, failures: 0, notBefore: 0, heardAt: 0, isDone: !("follows" in document.body.dataset) || !window.EventSource };
  const refreshSoon = () => {
    parts.forEach((part) => { part.isChanged = true; });
    clearTimeout(next);
    next = setTimeout(() => tick(false), Math.max(Math.random() * pause() / 5, pause() - (performance.now() - tickedAt)));
  };
  const unfollow = () => { stream.source?.close(); stream.source = null; };
  const lost = () => {
    unfollow();
    stream.failures += 1;
    stream.notBefore = performance.now() + every() * Math.min(2 ** (stream.failures - 1), 30) * (0.75 + Math.random() / 2);
    refreshSoon(); // if the console is away, the page is to say so
  };
  const follow = () => {
    if (stream.source && performance.now() - stream.heardAt > SILENT) lost();
    if (!parts.size) unfollow();
    if (stream.source || stream.isDone || document.hidden || !parts.size || performance.now() < stream.notBefore) return;
    const source = new EventSource(`/changes?of=${encodeURIComponent(document.body.dataset.path)}`);
    Object.assign(stream, { source, heardAt: performance.now() });
    const on = (name, heard) => source.addEventListener(name, () => { if (stream.source === source) { stream.heardAt = performance.now(); heard(); } });
    on("begun", () => { if (stream.failures) refreshSoon(); });
    on("beat", () => { stream.failures = 0; });
    on("changed", () => { stream.failures = 0; refreshSoon(); });
    on("away", refreshSoon);
    on("done", () => { stream.isDone = true; unfollow(); refreshSoon(); });
    source.onerror = () => { if (stream.source === source) lost(); };
  };
  window.addEventListener("pagehide", unfollow);
  const tick = (isOnTime = true) => {
    next = null;
    if (document.hidden) return;
    findParts();
    parts.forEach((part) => { if (part.isTime(isOnTime)) part.begin(); });
    if (isOnTime) ticks += 1;
    tickedAt = performance.now();
    const changed = [...parts.values()].filter((part) => part.isChanged && part.startedAt === null);
    const soonest = Math.min(...changed.map((part) => Math.max(pause(), Math.max(part.changesFrom(), part.notBefore) - tickedAt)));
    if (parts.size) next = soonest < every() ? setTimeout(() => tick(false), soonest) : setTimeout(tick, every());
    follow();
  };
  const seenAgain = () => {
    clearTimeout(next);
    parts.forEach((part) => {
      part.isDue = true;
      if (Date.now() - part.seenAt > 2 * SLOW * every()) { part.isOld = true; part.notBefore = 0; }
    });
    show();
    tick();
  };
  document.addEventListener("visibilitychange", () => { if (document.hidden) unfollow(); else seenAgain(); });
  window.addEventListener("pageshow", (event) => { if (event.persisted) seenAgain(); });

  const retry = document.getElementById("retry");
  if (retry) tryAgain();
  async function tryAgain() {
    // the page of an error: it is asked for until it can be shown
    const wait = retry.querySelector(".wait"), isTyped = () => [...document.querySelectorAll("input:not([type=hidden])")].some((each) => each.value !== each.defaultValue);
    const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });
    retry.hidden = false;
    for (let failures = 1; ; failures += 1) {
      const until = performance.now() + every() * Math.min(2 ** (failures - 1), 30) * (0.75 + Math.random() / 2);
      while (performance.now() < until || document.hidden) {
        wait.textContent = `Next try in ${Math.max(0, Math.ceil((until - performance.now()) / 1000))} s.`;
        await pause(Math.min(1000, Math.max(50, until - performance.now())));
      }
      wait.textContent = "Trying now.";
      try {
        const answer = await fetch(location.href, { headers: { "hx-request": "true", accept: "text/html" }, signal: AbortSignal.timeout(deadline()) });
        await answer.text();
        if (answer.status < 500) break;
      } catch { /* the next try comes */ }
    }
    if (!isTyped()) { location.reload(); return; }
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Load the page";
    retry.querySelector("[role=status]").replaceChildren("The page can be shown again. ", link);
    wait.textContent = "";
  }

  const live = document.getElementById("live");
  if (!live) { tick(); return; }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const COLOURS = { a: "--accent", b: "--good", c: "--bad" };
  const thousands = (value) => value.toString().replace(/\B(?=(\d{3})+$)/g, "\u202f"), tenths = (value) => value.toFixed(1).replace(/\.0$/, "");
  const short = (value) => value >= 1e6 ? tenths(value / 1e6) + " M" : value >= 1e5 ? Math.round(value / 1e3) + " k" : value >= 100 || Number.isInteger(value) ? thousands(Math.round(value)) : value.toPrecision(2);
  const seconds = (value) => value >= 3600 ? tenths(value / 3600) + " h" : value >= 60 ? tenths(value / 60) + " min" : value >= 1 ? tenths(value) + " s" : Math.round(value * 1000) + " ms";
  const plots = [...live.querySelectorAll(".plot")].map((element) => {
    const series = [...element.querySelectorAll("[data-series]")].map((each) => ({ name: each.dataset.series, mark: each.dataset.mark, shown: each.querySelector("b") }));
    const canvas = element.querySelector(".canvas");
    const write = element.dataset.unit === "s" ? seconds : short;
    const axis = () => ({ stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" });
    const plot = new uPlot({
      width: Math.max(200, canvas.clientWidth), height: 170, legend: { show: false }, cursor: { show: false },
      scales: { x: { range: (_u, _low, high) => [(high || Date.now() / 1000) - WINDOW, high || Date.now() / 1000] }, y: { range: (_u, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis(), space: 80, values: (_u, values) => values.map((value) => new Date(value * 1000).toISOString().slice(11, 19)) }, { ...axis(), size: 66, values: (_u, values) => values.map((value) => value === 0 ? "0" : write(value)) }],
      series: [{}, ...series.map((each) => ({ stroke: colour(COLOURS[each.mark]), width: 2, points: { show: false } }))],
    }, [[], ...series.map(() => [])], canvas);
    return { plot, series, canvas, write, data: [[], ...series.map(() => [])] };
  });
  new ResizeObserver(() => plots.forEach(({ plot, canvas }) => plot.setSize({ width: Math.max(200, canvas.clientWidth), height: 170 }))).observe(live);

  let past = [];
  const rate = (name, now) => {
    // counters of Postgres, which writes them about once a second: the rate is that of the last ten seconds
    const before = past.find((each) => now.at - each.at <= 10) || past.at(-1);
    if (!before || now[name] === null || before[name] === null || now[name] < before[name]) return undefined;
    return (now[name] - before[name]) / Math.max(0.001, now.at - before.at);
  };
  const needed = plots.flatMap(({ series }) => series.map((each) => each.name.replace("_rate", "")));
  const isWhole = (now) => Number.isFinite(now?.at) && needed.every((name) => now[name] === null || Number.isFinite(now[name]));
  const plotted = new Part(1, () => [live], async (ticket) => {
    const asked = new AbortController();
    plotted.abort = () => asked.abort();
    try {
      const answer = await fetch("/live", { headers: { accept: "application/json" }, signal: asked.signal });
      if (answer.status === 401) { location.reload(); return; }
      const text = await answer.text();
      if (answer.status !== 200) { plotted.fail(ticket, refusal(answer.status, text)); return; }
      let now = null;
      try { now = JSON.parse(text); } catch { /* it is not whole */ }
      if (!isWhole(now)) { plotted.fail(ticket, REASONS.lacking); return; }
      if (!plotted.awaits(ticket)) { plotted.fail(ticket, REASONS.late); return; }
      const isGap = plotted.failures > 0;
      draw(now, isGap);
      plotted.succeed(ticket, now.at * 1000);
    } catch { plotted.fail(ticket, REASONS.silent); }
  });
  const draw = (now, isGap) => {
    now.scheduled_rate = rate("scheduled", now);
    now.ended_rate = rate("ended", now);
    past = [...past.filter((each) => now.at - each.at <= 12), now];
    for (const { plot, series, data, write } of plots) {
      if (isGap) { data[0].push(now.at - 0.001); series.forEach((_, index) => data[index + 1].push(null)); } // a line would tell what nobody saw
      data[0].push(now.at);
      series.forEach((each, index) => {
        const value = now[each.name];
        data[index + 1].push(value ?? undefined); // the line goes on to the next value
        const legend = each.shown.parentElement, isKept = value === undefined && each.knownAt !== undefined;
        legend.classList.toggle("stale", isKept);
        legend.title = isKept ? `As of ${new Date(each.knownAt * 1000).toISOString().slice(11, 19)} UTC` : "";
        if (isKept) return;
        each.shown.textContent = value === null || value === undefined ? "–" : write(value);
        if (Number.isFinite(value)) each.knownAt = now.at;
      });
      while (data[0].length > KEPT) data.forEach((values) => values.shift());
      plot.setData(data);
    }
  };
  plotted.notBefore = 0; // plots begin empty
  parts.set("live", plotted);
  tick();
})();
