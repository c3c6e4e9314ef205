/* The scatter. Coordinates of rows are unit coordinates, 0 to 1 over the range of an axis. */
(() => {
  if (!rows) return;
  const { data, n, axes, values, certainty, groups, number } = rows;
  const rowName = rows.nameOf;
  const find = (id) => document.getElementById(id);
  const plot = find("plot"), frame = find("frame"), canvas = find("points"), tip = find("tip");
  const told = find("told"), legend = find("legend"), scale = find("scale");
  const colourMenu = find("colour"), acrossMenu = find("across"), upMenu = find("up");

  const LEFT = 58, BOTTOM = 44, TOP = 12, RIGHT = 12;
  const NEAR = 14; // pixels within which a point is found
  const MOST_LISTED = 100; // groups in the legend, the largest
  const MOST_TOLD = 6; // features of a row, those farthest from their mean
  const CELLS = 96; // of the index, along each axis

  /* -- state -- */
  let across = axes[data.first[0]], up = axes[data.first[1]];
  let view = [-0.04, -0.04, 1.04, 1.04]; // what is seen: left, bottom, right, top
  let colour = groups.length ? { groups: groups[0] } : { values: values[data.coloured] };
  let chosen = null; // { groups, code }: the group that is selected as a whole
  let loop = null; // pixels of the lasso that is being drawn
  let current = -1; // the row that is pointed at
  let paint = null; // colours of rows, 4 bytes each
  let index = null;

  /* -- colours -- */
  const drawn = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);
  const probe = drawn("path"), probeHolder = drawn("svg");
  probeHolder.setAttribute("class", "unseen");
  probeHolder.setAttribute("aria-hidden", "true");
  probeHolder.append(probe);
  document.body.append(probeHolder);
  const reader = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (css) => {
    reader.clearRect(0, 0, 1, 1);
    reader.fillStyle = css;
    reader.fillRect(0, 0, 1, 1);
    return [...reader.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const classColour = (name) => {
    probe.setAttribute("class", name);
    return getComputedStyle(probe).fill;
  };
  const style = (name) => {
    plot.style.color = `var(${name})`;
    const found = getComputedStyle(plot).color;
    plot.style.color = "";
    return found;
  };
  const lightness = (css) => rgb(css).reduce((a, b) => a + b) / 765;
  const RAMP = {
    light: [[68, 1, 84], [58, 82, 139], [32, 144, 140], [94, 180, 70], [205, 170, 0]],
    dark: [[118, 84, 200], [79, 143, 214], [62, 190, 170], [150, 214, 100], [250, 232, 110]],
  };
  let theme = null;
  const readTheme = () => {
    theme = {
      ink: style("--ink"), soft: style("--soft"), hair: style("--hair"), paper: style("--paper"),
      c: Array.from({ length: 8 }, (_, k) => rgb(classColour(`c${k}`))), // components
      d: Array.from({ length: 8 }, (_, k) => rgb(classColour(`d${k}`))), // classes
    };
    theme.ramp = lightness(theme.paper) > 0.5 ? RAMP.light : RAMP.dark;
    theme.missing = rgb(theme.hair);
  };
  const onRamp = (t) => {
    const place = Math.min(Math.max(t, 0), 1) * (theme.ramp.length - 1);
    const k = Math.min(Math.floor(place), theme.ramp.length - 2);
    return theme.ramp[k].map((low, j) => Math.round(low + (theme.ramp[k + 1][j] - low) * (place - k)));
  };

  const shown = rows.isSelected;
  const repaint = () => {
    paint = new Uint8Array(4 * n);
    const table = colour.values && Array.from({ length: 256 }, (_, t) => onRamp(t / 255));
    for (let i = 0; i < n; i++) {
      let c;
      if (colour.groups) c = theme[colour.groups.kind][colour.groups.codes[i] % 8];
      else {
        const code = colour.values.codes[i];
        c = code > colour.values.top ? theme.missing : table[Math.round((255 * code) / colour.values.top)];
      }
      paint[4 * i] = c[0];
      paint[4 * i + 1] = c[1];
      paint[4 * i + 2] = c[2];
      paint[4 * i + 3] = shown(i) ? 255 : 0;
    }
    painter.colours(paint);
    later();
  };

  /* -- drawing of points: WebGL, or a plain canvas where there is none -- */
  const size = () => Math.max(3, Math.min(7, 260 / Math.sqrt(n))) * Math.min(1.8, Math.sqrt(1.08 / (view[2] - view[0])));
  const opacity = () => (n > 5000 ? 0.55 : 0.8);

  const webglPainter = () => {
    const gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: true, preserveDrawingBuffer: true });
    if (!gl) return null;
    const compile = (kind, source) => {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      return shader;
    };
    const program = gl.createProgram();
    gl.attachShader(program, compile(gl.VERTEX_SHADER, `#version 300 es
      in float x; in float y; in vec4 colour; in float mark;
      uniform vec4 view; uniform float size; uniform float opacity;
      out vec4 tint; flat out int shape; out float width;
      void main() {
        vec2 place = (vec2(x, y) * (65535.0 / 65534.0) - view.xy) / (view.zw - view.xy);
        gl_Position = vec4(2.0 * place - 1.0, 0.0, 1.0);
        gl_PointSize = size + 2.0;
        width = size + 2.0;
        tint = vec4(colour.rgb, colour.a > 0.5 ? opacity : 0.06);
        shape = int(mark + 0.5);
      }`));
    gl.attachShader(program, compile(gl.FRAGMENT_SHADER, `#version 300 es
      precision highp float;
      in vec4 tint; flat in int shape; in float width; out vec4 colour;
      void main() {
        vec2 p = (gl_PointCoord - 0.5) * width;
        float r = 0.5 * width - 1.0;
        float d = shape == 0 ? length(p) - r
                : shape == 1 ? max(abs(p.x), abs(p.y)) - 0.9 * r
                : shape == 2 ? max(0.866 * abs(p.x) - 0.5 * p.y, p.y) - 0.6 * r
                : 0.707 * (abs(p.x) + abs(p.y) - 1.1 * r);
        float a = tint.a * clamp(0.5 - d, 0.0, 1.0);
        colour = vec4(tint.rgb * a, a);
      }`));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
    gl.useProgram(program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    const place = (name) => gl.getUniformLocation(program, name);
    const uniforms = { view: place("view"), size: place("size"), opacity: place("opacity") };
    const attribute = (name, length, type, normalised) => {
      const buffer = gl.createBuffer(), at = gl.getAttribLocation(program, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, length, type, normalised, 0, 0);
      return (array) => {
        gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
        gl.bufferData(gl.ARRAY_BUFFER, array, gl.STATIC_DRAW);
      };
    };
    const set = {
      x: attribute("x", 1, gl.UNSIGNED_SHORT, true),
      y: attribute("y", 1, gl.UNSIGNED_SHORT, true),
      colour: attribute("colour", 4, gl.UNSIGNED_BYTE, true),
      mark: attribute("mark", 1, gl.UNSIGNED_BYTE, false),
    };
    return {
      kind: "webgl2",
      places: (x, y) => (set.x(x), set.y(y)),
      colours: (c) => set.colour(c),
      marks: (m) => set.mark(m),
      draw: (ratio) => {
        gl.viewport(0, 0, canvas.width, canvas.height);
        gl.clearColor(0, 0, 0, 0);
        gl.clear(gl.COLOR_BUFFER_BIT);
        gl.uniform4fv(uniforms.view, view);
        gl.uniform1f(uniforms.size, size() * ratio);
        gl.uniform1f(uniforms.opacity, opacity());
        gl.drawArrays(gl.POINTS, 0, n);
      },
    };
  };

  const plainPainter = () => {
    const context = canvas.getContext("2d");
    let x, y, colours;
    return {
      kind: "canvas",
      places: (a, b) => ([x, y] = [a, b]),
      colours: (c) => (colours = c),
      marks: () => {},
      draw: (ratio) => {
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, canvas.width, canvas.height);
        const s = size() * ratio;
        for (let i = 0; i < n; i++) {
          const px = ((x[i] / 65534 - view[0]) / (view[2] - view[0])) * canvas.width;
          const py = (1 - (y[i] / 65534 - view[1]) / (view[3] - view[1])) * canvas.height;
          context.globalAlpha = colours[4 * i + 3] ? opacity() : 0.06;
          context.fillStyle = `rgb(${colours[4 * i]},${colours[4 * i + 1]},${colours[4 * i + 2]})`;
          context.fillRect(px - s / 2, py - s / 2, s, s);
        }
      },
    };
  };
  const painter = webglPainter() || plainPainter();
  frame.dataset.painter = painter.kind;

  const inner = () => ({ width: plot.clientWidth - LEFT - RIGHT, height: plot.clientHeight - TOP - BOTTOM });
  const toPixel = (i) => {
    const { width, height } = inner();
    return [
      LEFT + ((across.codes[i] / 65534 - view[0]) / (view[2] - view[0])) * width,
      TOP + (1 - (up.codes[i] / 65534 - view[1]) / (view[3] - view[1])) * height,
    ];
  };
  const toUnit = (px, py) => {
    const { width, height } = inner();
    return [
      view[0] + ((px - LEFT) / width) * (view[2] - view[0]),
      view[1] + (1 - (py - TOP) / height) * (view[3] - view[1]),
    ];
  };

  const ticks = (low, high, about) => {
    const span = high - low || 1;
    let step = 10 ** Math.floor(Math.log10(span / about));
    for (const m of [1, 2, 5, 10]) if (span / (step * m) <= about) { step *= m; break; }
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * span; k++) found.push(k * step);
    return found;
  };

  let waiting = false;
  const later = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
  const draw = () => {
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = inner();
    if (width <= 0 || height <= 0) return;
    canvas.style.left = `${LEFT}px`;
    canvas.style.top = `${TOP}px`;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const fit = (c, w, h) => {
      const [cw, ch] = [Math.round(w * ratio), Math.round(h * ratio)];
      if (c.width !== cw || c.height !== ch) [c.width, c.height] = [cw, ch];
    };
    fit(canvas, width, height);
    fit(frame, plot.clientWidth, plot.clientHeight);
    painter.draw(ratio);

    const context = frame.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, plot.clientWidth, plot.clientHeight);
    context.font = "12px system-ui, sans-serif";
    context.strokeStyle = theme.hair;
    context.lineWidth = 1;
    context.strokeRect(LEFT - 0.5, TOP - 0.5, width + 1, height + 1);
    context.fillStyle = theme.soft;
    const value = (axis, unit) => axis.low + (axis.high - axis.low) * unit;
    const along = (axis, from, to, place, about) => {
      const [low, high] = [value(axis, from), value(axis, to)];
      const found = ticks(low, high, about);
      const digits = found.length > 1 ? Math.max(0, -Math.floor(Math.log10(found[1] - found[0]) + 1e-9)) : 2;
      const label = (tick) => (digits > 6 ? number(tick) : (tick + 0).toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−"));
      for (const tick of found) place((tick - low) / (high - low || 1), label(tick));
    };
    context.textAlign = "center";
    along(across, view[0], view[2], (t, label) => context.fillText(label, LEFT + t * width, TOP + height + 16), Math.max(2, width / 90));
    context.textAlign = "right";
    along(up, view[1], view[3], (t, label) => context.fillText(label, LEFT - 6, TOP + (1 - t) * height + 4), Math.max(2, height / 60));
    context.fillStyle = theme.ink;
    context.textAlign = "center";
    context.fillText(across.name, LEFT + width / 2, TOP + height + 35);
    context.save();
    context.translate(17, TOP + height / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(up.name, 0, 0);
    context.restore();
    if (current >= 0) {
      const [px, py] = toPixel(current);
      context.beginPath();
      context.arc(px, py, size() / 2 + 4, 0, 2 * Math.PI);
      context.strokeStyle = theme.ink;
      context.lineWidth = 2;
      context.stroke();
    }
    if (rows.picked >= 0) {
      const [px, py] = toPixel(rows.picked);
      context.beginPath();
      context.arc(px, py, size() / 2 + 7, 0, 2 * Math.PI);
      context.strokeStyle = theme.ink;
      context.lineWidth = 2.5;
      context.setLineDash([3, 2]);
      context.stroke();
      context.setLineDash([]);
    }
    if (loop) {
      context.beginPath();
      loop.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.closePath();
      context.strokeStyle = theme.ink;
      context.lineWidth = 1.5;
      context.stroke();
      context.globalAlpha = 0.08;
      context.fillStyle = theme.ink;
      context.fill();
      context.globalAlpha = 1;
    }
    frame.dataset.drawn = String(n);
  };

  /* -- finding points: rows sorted by the cell of a grid they are in -- */
  const cellOf = (code) => Math.min(CELLS - 1, Math.floor((code / 65535) * CELLS));
  const reindex = () => {
    const start = new Uint32Array(CELLS * CELLS + 1), order = new Uint32Array(n);
    const cell = (i) => cellOf(up.codes[i]) * CELLS + cellOf(across.codes[i]);
    for (let i = 0; i < n; i++) start[cell(i) + 1]++;
    for (let c = 0; c < CELLS * CELLS; c++) start[c + 1] += start[c];
    const next = start.slice();
    for (let i = 0; i < n; i++) order[next[cell(i)]++] = i;
    index = { start, order };
  };
  const within = function* (px, py, reach) {
    const [x0, y1] = toUnit(px - reach, py - reach), [x1, y0] = toUnit(px + reach, py + reach);
    const clamp = (u) => Math.min(CELLS - 1, Math.max(0, Math.floor(u * CELLS)));
    for (let r = clamp(y0); r <= clamp(y1); r++)
      for (let c = clamp(x0); c <= clamp(x1); c++)
        for (let j = index.start[r * CELLS + c]; j < index.start[r * CELLS + c + 1]; j++)
          if (shown(index.order[j])) yield index.order[j];
  };
  const nearest = (px, py) => {
    let best = -1, least = NEAR * NEAR;
    for (const i of within(px, py, NEAR)) {
      const [x, y] = toPixel(i);
      const distance = (x - px) ** 2 + (y - py) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  };

  /* -- telling of a row -- */
  const described = (i) => {
    const parts = groups.map((g) => {
      const sure = certainty && g === groups[0] ? ` (${Math.round(100 * certainty.at(i))} % sure)` : "";
      return g.names[g.codes[i]].startsWith(g.noun) ? `${g.names[g.codes[i]]}${sure}` : `${g.noun}: ${g.names[g.codes[i]]}${sure}`;
    });
    if (values.length) parts.push(`${values[0].name}: ${number(values[0].at(i))}`);
    if (colour.values && colour.values !== values[0]) parts.push(`${colour.values.name}: ${rows.cell(colour.values, colour.values.at(i))}`);
    parts.push(`${across.name}: ${number(across.at(i))}`, `${up.name}: ${number(up.at(i))}`);
    if (!data.picture)
      for (const { feature, value } of rows.farthest(i, MOST_TOLD))
        if (feature !== colour.values) parts.push(`${feature.name}: ${rows.cell(feature, value)}`);
    return parts;
  };
  const thumbnail = (i) => {
    const [height, width, colours = 1] = data.picture;
    const features = values.slice(values.length - height * width * colours);
    const low = Math.min(...features.map((f) => f.low)), high = Math.max(...features.map((f) => f.high));
    const small = document.createElement("canvas");
    [small.width, small.height] = [width, height];
    const zoom = Math.max(1, Math.round(80 / Math.max(width, height)));
    small.style.width = `${zoom * width}px`;
    small.style.height = `${zoom * height}px`;
    const context = small.getContext("2d"), pixels = context.createImageData(width, height);
    const level = (j) => Math.round((255 * ((features[j].at(i) || low) - low)) / (high - low || 1));
    for (let j = 0; j < height * width; j++)
      pixels.data.set([level(colours * j), level(colours * (j + 1) - (colours > 1 ? 2 : 1)), level(colours * (j + 1) - 1), 255], 4 * j);
    context.putImageData(pixels, 0, 0);
    return small;
  };
  const point = (i, aloud) => {
    if (i === current && !aloud) return;
    current = i;
    later();
    tip.hidden = i < 0;
    frame.dataset.row = i < 0 ? "" : rowName(i);
    if (i < 0) return;
    const name = document.createElement("strong");
    name.textContent = rowName(i);
    const lines = described(i).map((text) => {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    });
    tip.replaceChildren(name, ...lines, ...(data.picture ? [thumbnail(i)] : []));
    const [px, py] = toPixel(i);
    const left = px + 16 + tip.offsetWidth > plot.clientWidth ? px - 16 - tip.offsetWidth : px + 16;
    const top = Math.min(Math.max(4, py - tip.offsetHeight / 2), plot.clientHeight - tip.offsetHeight - 4);
    tip.style.transform = `translate(${Math.round(Math.max(4, left))}px, ${Math.round(top)}px)`;
    if (aloud) told.textContent = `${rowName(i)}. ${described(i).join(". ")}.`;
  };

  /* -- groups -- */
  const swatch = (code) => {
    const svg = drawn("svg"), path = drawn("path");
    svg.setAttribute("viewBox", "-6 -6 12 12");
    svg.setAttribute("class", "swatch");
    svg.setAttribute("aria-hidden", "true");
    path.setAttribute("d", data.marks[Math.floor(code / 8) % 4]);
    path.setAttribute("class", colour.groups ? `${colour.groups.kind}${code % 8}` : "c7");
    svg.append(path);
    return svg;
  };
  const listed = () => colour.groups || groups[0];
  const choose = (group, code) => {
    const again = chosen && chosen.groups === group && chosen.code === code;
    const next = again || code === null ? null : { groups: group, code };
    point(-1);
    if (next) rows.selectWhere((i) => group.codes[i] === code, group.names[code]);
    else rows.select(null);
    chosen = next;
    mark();
  };
  const mark = () => {
    for (const button of legend.children) button.setAttribute("aria-pressed", String(!!chosen && +button.dataset.code === chosen.code));
  };
  document.addEventListener("selected", () => {
    chosen = null;
    mark();
    told.textContent = rows.selected ? `Only ${rows.said}: ${rows.size()} of ${n} rows.` : `All ${n} rows.`;
    repaint();
  });
  document.addEventListener("picked", () => later());
  const relist = () => {
    const group = listed();
    legend.replaceChildren();
    scale.hidden = !colour.values;
    if (colour.values) {
      const bar = document.createElement("canvas");
      [bar.width, bar.height] = [128, 1];
      const context = bar.getContext("2d");
      for (let t = 0; t < 128; t++) {
        context.fillStyle = `rgb(${onRamp(t / 127).join(",")})`;
        context.fillRect(t, 0, 1, 1);
      }
      const [low, high] = [rows.cell(colour.values, colour.values.low), rows.cell(colour.values, colour.values.high)];
      scale.replaceChildren(`${colour.values.name}: ${low}`, bar, high);
    }
    if (!group || group.names.length < 2) return;
    const sizes = new Uint32Array(group.names.length);
    for (let i = 0; i < n; i++) sizes[group.codes[i]]++;
    const largest = [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a] || a - b).slice(0, MOST_LISTED);
    for (const code of largest.filter((code) => sizes[code]).sort((a, b) => a - b)) {
      const button = document.createElement("button");
      const size = document.createElement("small");
      button.type = "button";
      button.dataset.code = String(code);
      button.setAttribute("aria-pressed", String(!!chosen && chosen.groups === group && chosen.code === code));
      size.textContent = String(sizes[code]);
      button.append(swatch(code), group.names[code], size);
      button.addEventListener("click", () => choose(group, code));
      legend.append(button);
    }
  };
  const remark = () => {
    const marks = new Uint8Array(n);
    if (colour.groups) for (let i = 0; i < n; i++) marks[i] = Math.floor(colour.groups.codes[i] / 8) % 4;
    painter.marks(marks);
  };

  /* -- menus -- */
  const recolour = () => {
    const [kind, place] = [colourMenu.value[0], +colourMenu.value.slice(1)];
    colour = kind === "g" ? { groups: groups[place] } : { values: values[place] };
    if (chosen && chosen.groups !== listed()) chosen = null;
    readTheme();
    remark();
    relist();
    repaint();
  };
  const replace = () => {
    [across, up] = [axes[+acrossMenu.value], axes[+upMenu.value]];
    painter.places(across.codes, up.codes);
    reindex();
    point(-1);
    showAll();
  };
  const showAll = () => {
    view = [-0.04, -0.04, 1.04, 1.04];
    later();
  };
  const zoom = (factor, px, py) => {
    const { width, height } = inner();
    const [x, y] = toUnit(px ?? LEFT + width / 2, py ?? TOP + height / 2);
    const wide = (view[2] - view[0]) * factor;
    if (wide > 4 || wide < 1e-3) return;
    view = [x + (view[0] - x) * factor, y + (view[1] - y) * factor, x + (view[2] - x) * factor, y + (view[3] - y) * factor];
    point(-1);
    later();
  };
  const move = (dx, dy) => {
    const { width, height } = inner();
    const [x, y] = [(-dx / width) * (view[2] - view[0]), (dy / height) * (view[3] - view[1])];
    view = [view[0] + x, view[1] + y, view[2] + x, view[3] + y];
    later();
  };
  colourMenu.addEventListener("change", recolour);
  acrossMenu.addEventListener("change", replace);
  upMenu.addEventListener("change", replace);
  find("closer").addEventListener("click", () => zoom(0.7));
  find("farther").addEventListener("click", () => zoom(1 / 0.7));
  find("all").addEventListener("click", () => {
    showAll();
    if (rows.selected) rows.select(null);
  });

  /* -- mouse and touch -- */
  const placeOf = (event) => {
    const box = frame.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let held = null, moved = false, lassoing = false;
  const lasso = find("lasso");
  lasso.addEventListener("click", () => {
    lassoing = !lassoing;
    lasso.setAttribute("aria-pressed", String(lassoing));
    frame.classList.toggle("lassoing", lassoing);
  });
  const inside = (px, py) => {
    let odd = false;
    for (let a = 0, b = loop.length - 1; a < loop.length; b = a++) {
      const [ax, ay] = loop[a], [bx, by] = loop[b];
      if (ay > py !== by > py && px < ((bx - ax) * (py - ay)) / (by - ay) + ax) odd = !odd;
    }
    return odd;
  };
  frame.addEventListener("pointerdown", (event) => {
    held = placeOf(event);
    moved = false;
    loop = lassoing || event.shiftKey ? [held] : null;
    frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", (event) => {
    const [px, py] = placeOf(event);
    if (!held) return point(nearest(px, py));
    const [dx, dy] = [px - held[0], py - held[1]];
    if (!moved && Math.hypot(dx, dy) < 4) return;
    moved = true;
    if (loop) {
      loop.push([px, py]);
      point(-1);
      return later();
    }
    frame.classList.add("moving");
    point(-1);
    move(dx, dy);
    held = [px, py];
  });
  frame.addEventListener("pointerup", (event) => {
    frame.classList.remove("moving");
    const clicked = held && !moved;
    held = null;
    if (loop && moved) {
      rows.selectWhere((i) => inside(...toPixel(i)), "the rows in the lasso");
      loop = null;
      return later();
    }
    loop = null;
    if (!clicked) return;
    const i = nearest(...placeOf(event));
    if (i >= 0) {
      rows.pick(i);
      told.textContent = `Picked ${rowName(i)}.`;
    } else if (rows.selected) rows.select(null);
  });
  frame.addEventListener("pointercancel", () => (held = loop = null));
  frame.addEventListener("pointerleave", () => !held && point(-1));
  frame.addEventListener("dblclick", showAll);
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    zoom(Math.exp(event.deltaY * 0.002), ...placeOf(event));
  }, { passive: false });

  /* -- keys: arrows step to the next point that way, or move the view with Shift -- */
  const step = (dx, dy) => {
    const { width, height } = inner();
    const [px, py] = current >= 0 ? toPixel(current) : [LEFT + width / 2, TOP + height / 2];
    let best = -1, least = Infinity;
    for (let i = 0; i < n; i++) {
      if (i === current || !shown(i)) continue;
      const [x, y] = toPixel(i);
      if (x < LEFT || x > LEFT + width || y < TOP || y > TOP + height) continue;
      const ahead = (x - px) * dx + (y - py) * dy, aside = Math.abs((x - px) * dy) + Math.abs((y - py) * dx);
      if (current >= 0 && ahead <= 0.01) continue;
      const distance = current >= 0 ? ahead + 3 * aside : Math.hypot(x - px, y - py);
      if (distance < least) [best, least] = [i, distance];
    }
    if (best >= 0) point(best, true);
  };
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  frame.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key];
    if (arrow && event.shiftKey) move(-40 * arrow[0], -40 * arrow[1]);
    else if (arrow) step(...arrow);
    else if (event.key === "+" || event.key === "=") zoom(0.7);
    else if (event.key === "-") zoom(1 / 0.7);
    else if (event.key === "0" || event.key === "Home") showAll();
    else if (event.key === "Enter" && current >= 0 && listed()) choose(listed(), listed().codes[current]);
    else if (event.key === " " && current >= 0) rows.pick(current);
    else return;
    event.preventDefault();
  });
  find("scatter-figure").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    point(-1);
    showAll();
    rows.select(null);
  });

  const restyle = () => {
    readTheme();
    relist();
    repaint();
  };
  document.addEventListener("themechange", restyle);
  new ResizeObserver(later).observe(plot);
  painter.places(across.codes, up.codes);
  readTheme();
  reindex();
  recolour();
})();
