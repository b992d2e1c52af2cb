"use strict";
(() => {
  const rows = Array.from(document.querySelectorAll("#ledger tbody"));
  const text = document.getElementById("filter");
  const wrong = document.getElementById("wrong");
  const shown = document.getElementById("shown");
  if (!text) return;
  const filter = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of rows) {
      const content = row.textContent.toLowerCase();
      const stays = words.every((word) => content.includes(word)) && !(wrong?.checked && !row.classList.contains("wrong"));
      row.hidden = !stays;
      left += stays;
    }
    shown.textContent = `${left} of ${rows.length}`;
  };
  text.addEventListener("input", filter);
  wrong?.addEventListener("change", filter);
  text.closest(".filter").hidden = false;
  filter();
})();
