// Before the first paint, so that a chosen theme never flashes. Not a module for that reason.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("metaxc-theme");
  } catch {
    // Storage may be forbidden; the system's theme holds then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
