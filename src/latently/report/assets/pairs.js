/* Every pair of a few features, as pixels; dragging over one selects the rows in the rectangle. */
(() => {
  const holder = document.getElementById("pairs");
  if (!rows || !holder) return;
  const { n, groups, number } = rows;
  const shown = [...rows.features].slice(0, 0);
  for (const feature of JSON.parse(holder.dataset.features)) {
    const found = rows.features.find((one) => one.feature === feature);
    if (found) shown.push(found);
  }
  if (shown.length < 2) return;
  const K = shown.length, PAD = 4;
  const pads = [];
  const probe = document.createElement("span");
  probe.hidden = true;
  holder.append(probe);
  const colourOf = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  const place = (feature, i, size) => PAD + (feature.codes[i] / feature.top) * (size - 2 * PAD);

  const draw = () => {
    const group = groups[0], palette = Array.from({ length: 8 }, (_, k) => colourOf(`${group ? group.kind : "c"}${k}`));
    const ratio = window.devicePixelRatio || 1, dot = n > 5000 ? 1 : n > 800 ? 2 : 3;
    for (const { canvas, x, y } of pads) {
      const size = Math.round(canvas.clientWidth * ratio);
      if (!size) continue;
      if (canvas.width !== size) [canvas.width, canvas.height] = [size, size];
      const context = canvas.getContext("2d"), image = context.createImageData(size, size);
      const wide = Math.max(1, Math.round(dot * ratio));
      const put = (i, alpha) => {
        if (x.codes[i] > x.top || y.codes[i] > y.top) return;
        const px = Math.round(place(x, i, size) - wide / 2), py = Math.round(size - place(y, i, size) - wide / 2);
        const colour = palette[group ? group.codes[i] % 8 : 0];
        for (let b = 0; b < wide; b++)
          for (let a = 0; a < wide; a++) {
            const at = 4 * ((py + b) * size + px + a);
            if (px + a < 0 || px + a >= size || at < 0 || at >= image.data.length) continue;
            image.data.set(colour, at);
            image.data[at + 3] = alpha;
          }
      };
      if (rows.selected) for (let i = 0; i < n; i++) if (!rows.selected[i]) put(i, 30);
      for (let i = 0; i < n; i++) if (rows.isSelected(i)) put(i, 220);
      context.putImageData(image, 0, 0);
    }
  };

  const grid = document.createElement("div");
  grid.className = "pairs-grid";
  grid.style.gridTemplateColumns = `repeat(${K}, minmax(0, 1fr))`;
  for (let r = 0; r < K; r++)
    for (let c = 0; c < K; c++) {
      const box = document.createElement("div");
      if (r === c) {
        box.className = "pair-name";
        box.textContent = shown[r].name;
      } else if (c < r) {
        const canvas = document.createElement("canvas"), shade = document.createElement("div");
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${shown[r].name} against ${shown[c].name}`);
        shade.className = "pair-brush";
        shade.hidden = true;
        box.className = "pair";
        box.append(canvas, shade);
        const pad = { canvas, x: shown[c], y: shown[r] };
        pads.push(pad);
        brush(box, shade, pad);
      }
      grid.append(box);
    }
  holder.append(grid);

  function brush(box, shade, { x, y }) {
    let from = null, to = null;
    const at = (event) => {
      const b = box.getBoundingClientRect();
      return [Math.min(Math.max(event.clientX - b.left, 0), b.width), Math.min(Math.max(event.clientY - b.top, 0), b.height)];
    };
    box.addEventListener("pointerdown", (event) => {
      from = to = at(event);
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      if (!from) return;
      to = at(event);
      shade.hidden = false;
      Object.assign(shade.style, {
        left: `${Math.min(from[0], to[0])}px`, top: `${Math.min(from[1], to[1])}px`,
        width: `${Math.abs(to[0] - from[0])}px`, height: `${Math.abs(to[1] - from[1])}px`,
      });
    });
    box.addEventListener("pointerup", () => {
      if (!from) return;
      const size = box.clientWidth, [a, b] = [from, to];
      from = null;
      shade.hidden = true;
      if (Math.abs(a[0] - b[0]) < 3 || Math.abs(a[1] - b[1]) < 3) return rows.selected && rows.select(null);
      const [left, right] = [a[0], b[0]].sort((p, q) => p - q), [low, high] = [size - a[1], size - b[1]].sort((p, q) => p - q);
      rows.selectWhere((i) => {
        if (x.codes[i] > x.top || y.codes[i] > y.top) return false;
        const [px, py] = [place(x, i, size), place(y, i, size)];
        return px >= left && px <= right && py >= low && py <= high;
      }, `a rectangle of ${x.name} and ${y.name}`);
    });
  }

  let waiting = false;
  const later = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
  for (const event of ["selected", "themechange"]) document.addEventListener(event, later);
  new ResizeObserver(later).observe(grid);
  later();
})();
