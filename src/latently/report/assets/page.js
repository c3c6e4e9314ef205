/* Light or dark: as the system says, until the button is used. */
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark()));
    document.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();

  /* The section that is being read, in the list of sections. */
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "-15% 0px -75% 0px" },
  );
  document.querySelectorAll("main > section").forEach((section) => seen.observe(section));

  /* Paper is light, and folded tables are printed too. */
  let opened = [], chosen;
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((details) => (details.open = true));
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
    show();
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((details) => (details.open = false));
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
    show();
  });
})();
