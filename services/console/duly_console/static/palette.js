// The command palette: keys "/", Ctrl-K and Cmd-K. It goes to pages, and to what the search finds. It opens what can be done on the
// page that is shown. It never confirms: a button that it presses leads to the page that asks.
"use strict";
(() => {
  const known = document.getElementById("palette-commands"), search = document.querySelector("form.search");
  if (!known || !search || !window.HTMLDialogElement) return;
  const MOST = 12; // options that are shown
  const PAUSE = 150; // ms without a key until the console is asked
  const DEADLINE = 5000; // ms
  const ID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i;

  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    element.append(...children);
    return element;
  };
  const input = make("input", { id: "palette-input", type: "text", role: "combobox", "aria-label": "Go to a page, a lambda or a task, or find", "aria-controls": "palette-list", "aria-expanded": "true", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", maxlength: "300", placeholder: "A page, a lambda, a task's id, or what to do" });
  const list = make("ul", { id: "palette-list", role: "listbox", "aria-label": "Commands" });
  const count = make("p", { class: "hidden", role: "status" });
  const dialog = make("dialog", { id: "palette", "aria-label": "Command palette" }, input, list, count, make("p", { class: "keys", "aria-hidden": "true" }, "\u2191 \u2193 choose \u00b7 Enter open \u00b7 Esc close"));
  document.body.append(dialog);

  let options = [], chosen = 0, hasMoved = false, lambdas = [], others = [], soughtFor = "", asked = null, timer = null;

  const go = (href) => () => { location.assign(href); };
  const commands = () => [...known.content.querySelectorAll("a")].map((each) => ({ title: each.textContent, kind: each.dataset.kind, run: go(each.getAttribute("href")) }));
  const fields = (form) => [...form.elements].filter((each) => each.matches("input:not([type=hidden]), select, textarea"));
  // A form without fields leads to its confirmation. Into one with fields, people type first.
  const buttons = () => [...document.querySelectorAll("main form[method=post] button")].filter((each) => {
    const { form } = each;
    return !form.closest("[hx-post]") && !form.elements.namedItem("confirm") && !each.disabled && each.checkVisibility();
  }).map((button) => {
    const [first] = fields(button.form);
    const field = first && (first.getAttribute("aria-label") || first.labels?.[0]?.textContent);
    return {
      title: button.getAttribute("aria-label") || (field ? `${button.textContent.trim()} ${field}` : button.textContent.trim()),
      kind: "on this page",
      run: () => { dialog.close(); if (first) { first.scrollIntoView({ block: "center" }); first.focus(); } else button.click(); },
    };
  });
  const whole = () => document.querySelector("main td") ? [{ title: document.documentElement.classList.contains("whole-lines") ? "Cut lines" : "Show whole lines (w)", kind: "on this page", run: () => { dialog.close(); document.dispatchEvent(new CustomEvent("duly:whole-lines")); } }] : [];

  const matches = (title, words) => words.every((word) => title.toLowerCase().includes(word));
  const rank = (title, text) => (title.toLowerCase().startsWith(text) ? 0 : title.toLowerCase().includes(` ${text}`) ? 1 : 2);
  const found = () => {
    const text = input.value.trim(), lower = text.toLowerCase(), words = lower.split(/\s+/).filter(Boolean);
    const all = [...commands(), ...buttons(), ...whole()];
    if (!text) return all.slice(0, MOST);
    if (ID.test(text)) return [
      { title: `Task ${text}`, kind: "task", run: go(`/tasks/${encodeURIComponent(text)}`) },
      { title: `Graph ${text}`, kind: "graph", run: go(`/graphs/${encodeURIComponent(text)}`) },
    ];
    const fitting = all.filter((each) => matches(each.title, words)).sort((one, other) => rank(one.title, lower) - rank(other.title, lower));
    const named = lambdas.filter((name) => name.toLowerCase().includes(lower)).sort((one, other) => rank(one, lower) - rank(other, lower));
    return [
      ...[...fitting.slice(0, 5), ...named.slice(0, 5).map((name) => ({ title: name, kind: "lambda", run: go(`/lambdas/${encodeURIComponent(name)}`) }))]
        .sort((one, other) => rank(one.title, lower) - rank(other.title, lower)),
      ...(named.includes(text) ? [{ title: `Tasks of ${text}`, kind: "tasks", run: go(`/tasks?lambda=${encodeURIComponent(text)}`) }, { title: `Pause ${text} \u2026`, kind: "opens the form", run: go(`/lambdas/${encodeURIComponent(text)}#p-duration`) }] : []),
      ...(text === soughtFor ? others.slice(0, 5) : []),
      { title: `Find \u201c${text}\u201d`, kind: "search", run: go(`${search.getAttribute("action")}?${new URLSearchParams({ [search.querySelector("input").name]: text })}`) },
    ].slice(0, MOST);
  };

  const choose = (index) => {
    chosen = options.length ? (index + options.length) % options.length : 0;
    [...list.children].forEach((each, place) => each.setAttribute("aria-selected", String(place === chosen)));
    const now = list.children[chosen];
    if (now) { input.setAttribute("aria-activedescendant", now.id); now.scrollIntoView({ block: "nearest" }); } else input.removeAttribute("aria-activedescendant");
  };
  const show = () => {
    options = found();
    list.replaceChildren(...options.map((each, place) => make("li", { id: `palette-${place}`, role: "option", "aria-selected": "false" }, make("span", {}, each.title), make("span", { class: "quiet" }, each.kind))));
    count.textContent = options.length === 1 ? "1 choice" : `${options.length} choices`;
    choose(0);
  };
  const ask = async () => {
    const text = input.value.trim();
    asked?.abort();
    if (text.length < 2 || ID.test(text)) return;
    const mine = new AbortController();
    asked = mine;
    try {
      const answer = await fetch(`/search.json?${new URLSearchParams({ q: text })}`, { headers: { accept: "application/json" }, signal: AbortSignal.any([mine.signal, AbortSignal.timeout(DEADLINE)]) });
      if (answer.status !== 200) return;
      const { groups } = await answer.json();
      if (asked !== mine || !dialog.open) return;
      lambdas = groups.flatMap(({ kind, hits }) => (kind === "lambda" ? hits.map(({ title }) => title) : []));
      others = groups.flatMap(({ kind, hits }) => (kind === "lambda" ? [] : hits.map(({ title, href }) => ({ title, kind: kind.replaceAll("_", " "), run: go(href) }))));
      soughtFor = text;
      const was = hasMoved && options[chosen]?.title;
      show();
      const again = options.findIndex((each) => each.title === was);
      hasMoved = again >= 0;
      choose(Math.max(0, again));
    } catch { /* without an answer there are fewer choices */ }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
    hasMoved = false;
    if (!input.value.trim().toLowerCase().includes(soughtFor.toLowerCase())) lambdas = [];
    show();
  });
  input.addEventListener("keydown", (event) => {
    const moves = { ArrowDown: () => chosen + 1, ArrowUp: () => chosen - 1, PageDown: () => options.length - 1, PageUp: () => 0 };
    if (event.key in moves) { event.preventDefault(); hasMoved = true; choose(moves[event.key]()); }
    if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); options[chosen]?.run(); }
  });
  list.addEventListener("click", (event) => {
    const at = [...list.children].indexOf(event.target.closest("li"));
    if (at >= 0) options[at].run();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => { clearTimeout(timer); asked?.abort(); });

  const open = () => {
    if (dialog.open) return;
    input.value = "";
    hasMoved = false;
    lambdas = others = [];
    show();
    dialog.showModal(); // the browser keeps the focus within, and gives it back
    input.focus();
  };
  document.querySelector(".palette-open")?.addEventListener("click", open);
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, select");
    const isSlash = event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey;
    const isK = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (!isSlash && !isK) return;
    event.preventDefault();
    if (dialog.open) { if (isK) dialog.close(); } else open();
  });
})();
