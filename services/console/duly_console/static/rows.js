// Rows of one line: buttons that copy, the whole text of what is cut, and the key "w" for whole lines.
"use strict";
(() => {
  const said = document.getElementById("said");
  const tell = (text) => { if (said) said.textContent = text; };
  const marked = new Map(); // buttons that were pressed, until they look as before

  const mark = (button, text) => {
    clearTimeout(marked.get(button));
    const isIcon = button.matches(".copy-id");
    if (isIcon) { button.classList.add("is-copied"); button.title = text; } else button.textContent = text;
    marked.set(button, setTimeout(() => {
      marked.delete(button);
      button.classList.remove("is-copied");
      if (isIcon) button.title = "Copy"; else button.textContent = "Copy";
    }, 4000));
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copies]");
    if (!button) return;
    const source = button.parentElement.querySelector("code, .id");
    try {
      await navigator.clipboard.writeText(source.textContent);
      mark(button, "Copied");
      tell(`Copied ${source.textContent}`);
    } catch {
      // no permission, or no TLS: what is selected can be copied by hand
      getSelection().selectAllChildren(source);
      mark(button, "Selected");
      tell("Selected. Copy it with Ctrl-C.");
    }
  });

  document.addEventListener("mouseover", (event) => {
    const cell = event.target.closest?.("td");
    if (!cell) return;
    const parts = [cell, ...cell.querySelectorAll(".fits > *, .two-lines")];
    if (!parts.some((each) => each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight + 1)) return;
    const text = cell.innerText.trim().replace(/\s*\n\s*/g, ", ");
    for (const part of parts) if (!part.title || part.matches(".fits > *")) part.title = text;
  });

  const toggleLines = () => tell(document.documentElement.classList.toggle("whole-lines") ? "Lines are whole." : "Lines are cut.");
  document.addEventListener("duly:whole-lines", toggleLines);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "w" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
    toggleLines();
  });
})();
