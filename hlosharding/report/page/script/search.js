// One field for the whole page: whatever stands in a row, and the names that lead to it.
const MOST_FOUND = 40;

class Search {
  constructor(field, list) {
    this.field = field;
    this.list = list;
    field.addEventListener("input", () => this.show());
    field.addEventListener("focus", () => this.show());
    const around = field.parentElement;
    around.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
    around.addEventListener("keydown", (event) => this.walk(event));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") list.querySelector("a")?.click();
    });
    list.addEventListener("click", (event) => {
      if (event.target.closest("a")) this.close();
    });
    document.addEventListener("click", (event) => {
      if (!around.contains(event.target)) this.close();
    });
  }

  // With the arrows, from the field to what was found and back.
  walk(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const stops = [this.field, ...this.list.querySelectorAll("a")];
    const next = by && stops[stops.indexOf(document.activeElement) + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  close() {
    this.list.hidden = true;
  }

  show() {
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.list.hidden = !words.length;
    if (!words.length) return;
    const found = places.filter((place) => words.every((word) => textOfRow(place).includes(word)));
    // A row that has the name itself comes first.
    const isNamed = (place) =>
      place.names.some((name) => name.slice(2).toLowerCase() === words[0].replace(/^[%#]/, ""));
    found.sort((a, b) => isNamed(b) - isNamed(a));
    const items = found.slice(0, MOST_FOUND).map((place) => this.item(place, words));
    const more =
      found.length > MOST_FOUND ? [element("li", { class: "note" }, `${found.length - MOST_FOUND} more rows`)] : [];
    this.list.replaceChildren(
      ...items,
      ...more,
      ...(found.length ? [] : [element("li", { class: "note" }, "nothing has that")]),
    );
    say(`${found.length} rows found`);
  }

  item(place, words) {
    const named = place.names.find((name) =>
      words.some((word) => name.toLowerCase().includes(word.replace(/^[%#]/, ""))),
    );
    const cells = place.spec.rows[place.number].map(textOf).filter((text) => text.trim());
    const link = linkTo(named ?? place.name, "");
    link.append(element("b", {}, place.title), " ", cells.slice(0, 6).join(" · "));
    return element("li", {}, link);
  }
}

// Of all that stands in a row, and its names; made once.
const textOfRow = (place) => {
  place.text ??= [...place.spec.rows[place.number].map(textOf), ...place.names.map((name) => name.replace(/^\w-/, "%"))]
    .join(" ")
    .toLowerCase();
  return place.text;
};
