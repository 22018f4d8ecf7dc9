"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = table.querySelectorAll("th[data-column]");
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const column = Number(head.dataset.column);
      const key = (row) => {
        const cell = row.cells[column];
        const number = cell.querySelector("data");
        return number ? Number(number.value) : cell.querySelector(".unseen") ? null : cell.textContent.trim();
      };
      const first = head.classList.contains("number") ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      });
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      table.tBodies[0].append(...rows);
    });
  }
}
