/* Files that the page makes: tables, and its pictures as SVG or PNG. Nothing leaves the browser. */
const save = (blob, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
};

(() => {
  const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "font-size", "font-family", "font-weight", "text-anchor", "opacity"];
  const ZOOM = 2;

  /* A drawing that stands alone: with the colours that the style sheet gives it now. */
  const standalone = (svg) => {
    const copy = svg.cloneNode(true);
    const [from, to] = [[svg, ...svg.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
    from.forEach((element, k) => {
      const style = getComputedStyle(element);
      for (const name of KEPT) to[k].setAttribute(name, style.getPropertyValue(name));
      to[k].removeAttribute("class");
      if (style.display === "none") to[k].setAttribute("display", "none");
    });
    const { width, height } = svg.viewBox.baseVal;
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor })) paper.setAttribute(name, value);
    copy.prepend(paper);
    return new XMLSerializer().serializeToString(copy);
  };
  const asPng = (canvas, name) => canvas.toBlob((blob) => save(blob, `${name}.png`));
  const svgAsPng = (svg, name) => {
    const image = new Image(), { width, height } = svg.viewBox.baseVal;
    image.addEventListener("load", () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [ZOOM * width, ZOOM * height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      asPng(canvas, name);
    });
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg))}`;
  };
  const together = (canvases) => {
    const boxes = canvases.map((one) => one.getBoundingClientRect());
    const left = Math.min(...boxes.map((b) => b.left)), top = Math.min(...boxes.map((b) => b.top));
    const right = Math.max(...boxes.map((b) => b.right)), bottom = Math.max(...boxes.map((b) => b.bottom));
    const ratio = window.devicePixelRatio || 1, whole = document.createElement("canvas");
    [whole.width, whole.height] = [Math.ceil((right - left) * ratio), Math.ceil((bottom - top) * ratio)];
    const context = whole.getContext("2d");
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, whole.width, whole.height);
    canvases.forEach((one, k) => context.drawImage(one, (boxes[k].left - left) * ratio, (boxes[k].top - top) * ratio, boxes[k].width * ratio, boxes[k].height * ratio));
    return whole;
  };
  const nameOf = (figure) =>
    (figure.dataset.name || figure.querySelector("svg.chart title, figcaption, img[alt]")?.textContent || figure.closest("section")?.querySelector("h2")?.textContent || "picture")
      .trim().toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "picture";
  const button = (kind, act) => {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: kind });
    made.addEventListener("click", act);
    return made;
  };
  for (const figure of document.querySelectorAll("main figure")) {
    const bar = Object.assign(document.createElement("div"), { className: "save" });
    const chart = figure.querySelector(".scroll > svg.chart"), image = figure.querySelector("img.pixels");
    const canvases = [...figure.querySelectorAll("canvas")].filter((one) => !one.closest("#tip, #scale"));
    if (chart) bar.append(button("SVG", () => save(new Blob([standalone(chart)], { type: "image/svg+xml" }), `${nameOf(figure)}.svg`)), button("PNG", () => svgAsPng(chart, nameOf(figure))));
    else if (image) bar.append(button("PNG", () => fromImage(image, nameOf(figure))));
    else if (canvases.length) {
      bar.append(button("PNG", () => asPng(together([...figure.querySelectorAll("canvas")].filter((one) => !one.closest("#tip, #scale"))), nameOf(figure))));
      const still = figure.querySelector(".still svg");
      if (still) bar.prepend(button("SVG", () => save(new Blob([standalone(still)], { type: "image/svg+xml" }), `${nameOf(figure)}.svg`)));
    } else continue;
    bar.prepend("Save as ");
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Save this picture");
    figure.append(bar);
  }
  function fromImage(image, name) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, image.width, image.height);
    asPng(canvas, name);
  }
})();
