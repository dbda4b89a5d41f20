// The appearance that was chosen in the interface, before anything is drawn.
const chosen = localStorage.getItem("forebay.theme");
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = chosen === "light" || chosen === "dark" ? chosen : dark ? "dark" : "light";
