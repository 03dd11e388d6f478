// The page comes to life: tables, timeline, search, colours; then the place that the address names.
const titleOfSection = (place) => place.closest("details")?.querySelector("h2").textContent ?? "";
const tablePlaces = [...document.querySelectorAll("[data-table]")];
tablePlaces.forEach((place) => enterTable(data.tables[place.dataset.table], titleOfSection(place)));
relatePlaces();
const stretch = document.querySelector("[data-timeline]");
if (stretch) timeline = new Timeline(stretch, data.timeline);
tablePlaces.forEach((place) => new Table(data.tables[place.dataset.table], place));
document.querySelectorAll(".linked").forEach((place) => place.replaceChildren(...linked(place.textContent)));

// What is drawn leads to its row.
document.querySelectorAll("figure [data-place]").forEach((drawing) => {
  const name = drawing.dataset.place;
  if (!placeByName.has(name)) return;
  const link = drawn("a", { href: `#${encodeURIComponent(name)}` });
  drawing.replaceWith(link);
  link.append(drawing);
});

const search = document.getElementById("search");
search.hidden = false;
new Search(search.querySelector("input"), document.getElementById("found"));

const theme = document.getElementById("theme");
const prefers = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (prefers.matches ? "dark" : "light")) === "dark";
const nameTheme = () => {
  theme.textContent = isDark() ? "light" : "dark";
};
theme.hidden = false;
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
prefers.addEventListener("change", nameTheme);
nameTheme();

window.addEventListener("hashchange", goToAddress);
goToAddress();
