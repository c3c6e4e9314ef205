/* The explorer: codes on sliders, the row or image that the model makes there, rows of the data beside it, and
   walks between them. Inside, rows are centred and in the units of the model; `inUnits` is what users see. */
(() => {
  const holder = document.getElementById("explorer-data");
  if (!rows || !holder) return;
  const data = JSON.parse(holder.textContent);
  const find = (id) => document.getElementById(id);
  const { number } = rows;
  const part = (name) => arrays.unpack(data[name])?.values;
  const maker = makers[data.maker.kind](data.maker);
  const centre = part("centre"), offset = part("offset"), scale = part("scale"), deviation = part("deviation");
  const low = part("low"), high = part("high"), scores = part("scores"), places = part("places"), codes = part("codes");
  const ranges = arrays.unpack(data.ranges), byClass = arrays.unpack(data.byClass);
  const D = centre.length, q = ranges.shape[1], noun = data.maker.noun;
  const MOST_BARS = 40, NEIGHBOURS = 5, MOST_CHANGES = 4;
  const cell = (j, v) => (data.cells ? rows.cell(data.cells[j], v) : number(v));
  const inUnits = (x, j) => (x[j] + centre[j]) * scale[j] + offset[j];
  const made = (tag, text, given = {}) => {
    const element = Object.assign(document.createElement(tag), given);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  /* -- the rows that are kept whole -- */
  const plain = data.rows.values ? arrays.unpack(data.rows.values) : null;
  const quantised = plain ? null : { codes: arrays.unpack(data.rows.codes).values, low: arrays.unpack(data.rows.low).values, span: arrays.unpack(data.rows.span).values };
  const entry = (r, j) => {
    if (plain) return plain.values[r * D + j];
    const code = quantised.codes[r * D + j];
    return code === 65535 ? NaN : quantised.low[j] + (quantised.span[j] * code) / 65534;
  };
  const rowAt = (r) => Float64Array.from({ length: D }, (_, j) => entry(r, j));
  const keptAt = new Map(Array.from(places, (place, r) => [place, r]));
  const codeOf = (r) => {
    if (codes) return { component: 0, code: codes.slice(r * q, (r + 1) * q) };
    const told = maker.tell(rowAt(r));
    return { component: told.component, code: told.code, told };
  };

  /* -- state -- */
  const state = { component: 0, code: null, x: null, row: -1, way: null };
  const range = (j) => {
    const at = 2 * ((ranges.shape[0] === 1 ? 0 : state.component) * q + j);
    return [ranges.values[at], ranges.values[at + 1]];
  };
  const meanCode = () => {
    if (data.maker.kind === "gaussians") return maker.mean(state.component);
    const total = new Float64Array(q);
    for (let r = 0; r < places.length; r++) for (let j = 0; j < q; j++) total[j] += codes[r * q + j];
    return total.map((sum) => sum / places.length);
  };
  const volume = (x) => x.reduce((sum, value, j) => sum + (Number.isNaN(value) ? 0 : Math.log(scale[j])), 0);
  const logDensity = (x) => maker.logDensity(x) - volume(x);
  const share = (score) => { // of the rows that are less probable
    let below = 0;
    while (below < scores.length && scores[below] < score) below++;
    return below / scores.length;
  };
  const usualness = (score) => {
    if (!scores) return "";
    const percent = Math.round(100 * share(score));
    return percent <= 0 ? "less probable than nearly all rows" : `more probable than ${Math.min(percent, 99)}\u00a0% of the rows`;
  };

  /* -- sliders -- */
  const component = find("component");
  const sliders = data.sliders.map((j) => {
    const line = made("div", undefined, { className: "slider" });
    const label = made("label", `${noun} ${j + 1}`, { htmlFor: `code-${j}` });
    const input = made("input", undefined, { type: "range", id: `code-${j}`, step: "any" });
    const value = made("output", "", { htmlFor: input.id });
    input.addEventListener("input", () => {
      state.code[j] = Number(input.value);
      leave();
      show();
    });
    input.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 5, PageDown: -5 }[event.key];
      if (!way) return;
      event.preventDefault();
      const [least, most] = [Number(input.min), Number(input.max)];
      input.value = Math.min(most, Math.max(least, Number(input.value) + (way * (most - least)) / 50));
      input.dispatchEvent(new Event("input"));
    });
    line.append(label, input, value);
    find("sliders").append(line);
    return { j, input, value };
  });
  if (sliders.length < q) find("more-codes").textContent = `The ${sliders.length} ${noun}s with the largest effect, of ${q}.`;
  if (!q) find("to-mean").hidden = true;
  const place = () => {
    if (component) component.value = String(state.component);
    for (const { j, input, value } of sliders) {
      const [least, most] = range(j), now = state.code[j];
      input.min = Math.min(least, now);
      input.max = Math.max(most, now);
      input.value = now;
      value.textContent = number(now);
      input.setAttribute("aria-valuetext", number(now));
    }
  };
  const leave = () => {
    if (state.row < 0 && !state.way) return;
    state.row = -1;
    state.way = null;
    find("walk").value = 0;
  };

  /* -- pictures -- */
  const paint = (canvas, x, signed) => {
    const [height, width, colours = 1] = data.image, [black, white] = data.grey;
    [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    const largest = signed ? x.reduce((most, v) => Math.max(most, Math.abs(v) || 0), 1e-9) : 0;
    for (let p = 0; p < height * width; p++)
      for (let c = 0; c < 3; c++) {
        const at = p * colours + (colours > 1 ? c : 0);
        let level;
        if (signed) {
          let v = 0;
          for (let k = 0; k < colours; k++) v += x[p * colours + k] / colours;
          const ends = v > 0 ? [0, 90, 160] : [205, 85, 0];
          level = 255 + (Math.abs(v || 0) / largest) * (ends[c] - 255);
        } else level = (255 * ((x[at] + centre[at] || 0) - black)) / (white - black || 1);
        image.data[4 * p + c] = Math.round(Math.min(255, Math.max(0, level)));
        image.data[4 * p + 3] = 255;
      }
    context.putImageData(image, 0, 0);
  };
  const canvasOf = (x) => {
    const canvas = document.createElement("canvas");
    paint(canvas, x, false);
    return canvas;
  };

  /* -- features as places on a line -- */
  const listed = (() => {
    if (data.image) return [];
    if (D <= MOST_BARS) return [...Array(D).keys()];
    const effect = new Float64Array(D); // those that differ most between codes
    for (let k = 0; k < maker.K; k++)
      for (let m = -1; m < Math.min(q, 12); m++) {
        state.component = k;
        const z = meanCode(), before = maker.decode(k, z);
        if (m >= 0) z[m] += (range(m)[1] - range(m)[0]) / 6;
        const after = maker.decode(k, z);
        for (let j = 0; j < D; j++) effect[j] = Math.max(effect[j], Math.abs(m < 0 ? after[j] : after[j] - before[j]) / deviation[j]);
      }
    state.component = 0;
    return [...effect.keys()].sort((a, b) => effect[b] - effect[a]).slice(0, MOST_BARS).sort((a, b) => a - b);
  })();
  const bars = listed.map((j) => {
    const line = made("div", undefined, { className: "bar-line" });
    const track = made("span", undefined, { className: "track" });
    const mark = made("i", undefined, { className: "made-mark" }), own = made("i", undefined, { className: "row-mark" });
    const value = made("span", "", { className: "value" }), rowValue = made("span", "", { className: "value row-value" });
    track.append(own, mark);
    line.append(made("span", data.features[j], { className: "feature", title: data.features[j] }), track, value, rowValue);
    return { j, line, mark, own, value, rowValue };
  });
  if (bars.length) {
    const head = made("div", undefined, { className: "bar-line head" });
    head.append(made("span", D > listed.length ? `${listed.length} of ${D} features` : "feature"), made("span", ""), made("span", "made", { className: "value" }), made("span", "row", { className: "value row-value" }));
    find("made-row").append(head, ...bars.map((bar) => bar.line));
  }
  const along = (x, j) => {
    const wide = high[j] - low[j] || 1;
    return Math.min(1, Math.max(0, (x[j] - low[j] + 0.05 * wide) / (1.1 * wide)));
  };

  /* -- showing -- */
  let waiting = false;
  const show = () => {
    place();
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
  const draw = () => {
    const x = state.x ?? maker.decode(state.component, state.code);
    const row = state.row >= 0 ? rowAt(state.row) : null;
    if (data.image) {
      paint(find("made-image"), x, false);
      for (const id of ["row-figure", "gap-figure"]) find(id).hidden = !row;
      if (row) {
        paint(find("row-image"), row, false);
        paint(find("gap-image"), row.map((value, j) => value - x[j]), true);
        find("row-caption").textContent = rows.nameOf(places[state.row]);
      }
    }
    for (const { j, mark, own, value, rowValue } of bars) {
      mark.style.left = `${100 * along(x, j)}%`;
      value.textContent = cell(j, inUnits(x, j));
      own.hidden = !row || Number.isNaN(row[j]);
      rowValue.textContent = row ? cell(j, inUnits(row, j)) : "";
      if (!own.hidden) own.style.left = `${100 * along(row, j)}%`;
    }
    if (maker.hasDensity) {
      const score = logDensity(x);
      find("made-told").textContent = `Log density ${number(score)}: ${usualness(score)}.`;
    }
    root.dataset.frames = String(Number(root.dataset.frames || 0) + 1);
    root.dataset.code = JSON.stringify(Array.from(state.code));
  };
  const root = find("explorer");
  const goTo = (k, code, x = null) => {
    [state.component, state.code, state.x] = [k, Float64Array.from(code), x];
    show();
  };
  /* For tests and the console: the row made at a code, in the units of the user, and what is told of a row. */
  root.made = (k, z) => {
    const x = maker.decode(k, z);
    return Array.from(x, (_, j) => inUnits(x, j));
  };
  root.row = (r) => Array.from(rowAt(r), (_, j) => inUnits(rowAt(r), j));
  root.tell = (r) => {
    const { component: k, code, told } = codeOf(r), x = rowAt(r);
    return { component: k, code: Array.from(code), probabilities: told?.probabilities, logDensity: maker.hasDensity ? logDensity(x) : null, made: root.made(k, code) };
  };
  root.kept = places;
  root.neighbours = (r) => neighbours(r, NEIGHBOURS);
  root.changes = (r) => changesOf(r);

  /* -- one row -- */
  let shared = null; // codes that can be compared, and their deviations
  const comparable = () => {
    if (shared) return shared;
    const common = maker.common && q > 0, length = common ? q : D;
    const found = new Float64Array(places.length * length);
    for (let r = 0; r < places.length; r++) {
      const own = !common ? rowAt(r) : codes ? codes.subarray(r * q, (r + 1) * q) : maker.sharedCode(rowAt(r));
      for (let m = 0; m < length; m++) found[r * length + m] = common ? own[m] : own[m] / deviation[m];
    }
    if (common)
      for (let m = 0; m < length; m++) {
        let sum = 0, squares = 0;
        for (let r = 0; r < places.length; r++) [sum, squares] = [sum + found[r * length + m], squares + found[r * length + m] ** 2];
        const sd = Math.sqrt(Math.max(squares / places.length - (sum / places.length) ** 2, 0)) || 1;
        for (let r = 0; r < places.length; r++) found[r * length + m] /= sd;
      }
    return (shared = { found, length, common });
  };
  const neighbours = (r, most) => {
    const { found, length, common } = comparable();
    const all = [];
    for (let s = 0; s < places.length; s++) {
      if (s === r) continue;
      let sum = 0, seen = 0;
      for (let m = 0; m < length; m++) {
        let gap = found[s * length + m] - found[r * length + m];
        if (!common && data.cells?.[m].nominal && !Number.isNaN(gap)) gap = Math.abs(gap) * deviation[m] < 0.5 ? 0 : 1; // alike or not
        if (!Number.isNaN(gap)) [sum, seen] = [sum + gap * gap, seen + 1];
      }
      if (seen) all.push([sum / seen, s]);
    }
    return all.sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, most).map(([, s]) => s);
  };
  const changesOf = (r) => {
    const x = rowAt(r), { found, reached } = maker.changes(x, data.usual + volume(x), MOST_CHANGES);
    return { reached, found: found.map((one) => ({ feature: one.feature, from: inUnits(x, one.feature), to: (one.value + centre[one.feature]) * scale[one.feature] + offset[one.feature], logDensity: one.logDensity - volume(x) })) };
  };
  const buttonFor = (r) => {
    const button = made("button", undefined, { type: "button", className: data.image ? "thumb" : "" });
    if (data.image) button.append(canvasOf(rowAt(r)));
    button.append(made("span", rows.nameOf(places[r])));
    button.addEventListener("click", () => rows.pick(places[r]));
    return button;
  };
  const names = data.names;
  const tellRow = (r, before) => {
    const i = places[r], { component: k, code, told } = codeOf(r), x = rowAt(r), box = find("row-told");
    const name = made("strong", rows.nameOf(i));
    const first = made("p");
    if (before) first.append(`${before} `);
    first.append(name, ". ");
    if (told && names.length > 1) first.append(`${names[k]} (${Math.round(100 * told.probabilities[k])} %). `);
    for (const group of rows.groups) if (group.kind === "d") first.append(`${group.noun}: ${group.names[group.codes[i]]}. `);
    if (maker.hasDensity) {
      const score = logDensity(x);
      first.append(`Log density ${number(score)}: ${usualness(score)}.`);
    }
    const pieces = [first];
    if (maker.hasDensity && !data.image && data.usual !== null) {
      const advice = made("p"), { found, reached } = changesOf(r);
      if (!found.length) advice.textContent = "The row is usual under the model.";
      else {
        const said = found.map((one) => `${data.features[one.feature]} ${cell(one.feature, one.to)} instead of ${cell(one.feature, one.from)}`);
        advice.textContent = reached
          ? `It would be usual with ${said.join(" and ")}.`
          : `More than ${found.length} features would have to change for it to be usual, first of all to ${said.join(", ")}.`;
      }
      pieces.push(advice);
    }
    const near = made("div", undefined, { className: "near" });
    near.append(made("span", `Nearest rows${comparable().common ? ` by ${noun}s` : ""}: `), ...neighbours(r, NEIGHBOURS).map(buttonFor));
    pieces.push(near);
    box.replaceChildren(...pieces);
    state.row = r;
    goTo(k, code);
  };
  /* The row itself if it is kept whole, else the nearest such row on the plot. */
  const keptNear = (i) => {
    if (keptAt.has(i)) return keptAt.get(i);
    const [a, b] = rows.data.first.map((axis) => rows.axes[axis].codes);
    let best = 0, least = Infinity;
    places.forEach((place, r) => {
      const distance = (a[place] - a[i]) ** 2 + (b[place] - b[i]) ** 2;
      if (distance < least) [best, least] = [r, distance];
    });
    return best;
  };
  document.addEventListener("picked", () => {
    if (rows.picked < 0) return;
    const i = rows.picked, r = keptNear(i);
    find("row-choice").value = rows.data.names ? rows.nameOf(places[r]) : String(rows.rowNumber(places[r]));
    if (!find("walk-from").value || find("walk-to").value) [find("walk-from").value, find("walk-to").value] = [find("row-choice").value, ""];
    else find("walk-to").value = find("row-choice").value;
    tellRow(r, places[r] === i ? "" : `${rows.nameOf(i)} is not kept whole on this page; the nearest one on the plot that is:`);
  });
  const wanted = (id, told) => {
    const i = rows.find(find(id).value);
    if (i < 0) told.textContent = `There is no row ${JSON.stringify(find(id).value)} on this page.`;
    return i;
  };
  const showRow = () => {
    const i = wanted("row-choice", find("row-told"));
    if (i >= 0) rows.pick(i);
  };
  const onEnter = (id, act) => find(id).addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    act();
  });
  find("row-show").addEventListener("click", showRow);
  onEnter("row-choice", showRow);
  find("row-random").addEventListener("click", () => rows.pick(places[Math.floor(random() * places.length)]));
  find("row-unusual")?.addEventListener("click", () => {
    const score = rows.values[0];
    let least = 0;
    for (let i = 0; i < rows.n; i++) if (score.at(i) < score.at(least)) least = i;
    rows.pick(least);
  });

  /* -- chance, the same in every visit -- */
  let seed = 20_261_118;
  const random = () => { // mulberry32
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const oneOf = (weights) => {
    let rest = random() * weights.reduce((a, b) => a + b, 0);
    return Math.max(0, weights.findIndex((weight) => (rest -= weight) < 0));
  };
  find("draw").addEventListener("click", () => {
    const from = find("draw-from").value, at = +from.slice(1);
    leave();
    if (codes) { // a code of a row, moved a little: no density of codes is known
      const fits = [...places.keys()].filter((r) => from === "all" || classOf(places[r]) === at);
      if (!fits.length) return;
      const r = fits[Math.floor(random() * fits.length)], s = fits[Math.floor(random() * fits.length)], t = 0.3 * random();
      return goTo(0, Float64Array.from({ length: q }, (_, m) => (1 - t) * codes[r * q + m] + t * codes[s * q + m]));
    }
    let weights = maker.weights;
    if (from[0] === "c" && byClass) weights = maker.weights.map((_, k) => byClass.values[at * maker.K + k]);
    const k = from[0] === "k" ? at : oneOf(weights);
    const { z, x } = maker.draw(k, random, normal, find("with-noise").checked);
    goTo(k, z, find("with-noise").checked ? x : null);
  });
  const classOf = (i) => rows.groups.find((group) => group.noun === "class")?.codes[i];

  find("to-mean").addEventListener("click", () => {
    leave();
    goTo(state.component, meanCode());
  });
  component?.addEventListener("change", () => {
    leave();
    state.component = +component.value;
    goTo(state.component, meanCode());
  });

  /* -- walks: codes change evenly, or rows where the ends have no common code -- */
  const walk = find("walk"), walkTold = find("walk-told");
  const along2 = (a, b, t) => a.map((value, m) => (1 - t) * value + t * b[m]);
  const step = () => {
    if (!state.way) return;
    const { from, to } = state.way, t = Number(walk.value) / 100;
    state.row = -1;
    const near = t < 0.5 ? from : to;
    if (maker.common || from.component === to.component) goTo(near.component, along2(from.code, to.code, t));
    else goTo(near.component, near.code, along2(maker.decode(from.component, from.code), maker.decode(to.component, to.code), t));
    const x = state.x ?? maker.decode(state.component, state.code);
    walkTold.textContent = `${Math.round(100 * t)} % of the way${maker.hasDensity ? `; log density ${number(logDensity(x))}` : ""}.`;
  };
  const start = () => {
    const [i, j] = [wanted("walk-from", walkTold), wanted("walk-to", walkTold)];
    if (i < 0 || j < 0) return;
    state.way = { from: codeOf(keptNear(i)), to: codeOf(keptNear(j)) };
    walk.disabled = false;
    walk.value = 0;
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) return step();
    const begun = performance.now(), way = state.way;
    const move = (now) => {
      if (state.way !== way) return;
      walk.value = Math.min(100, ((now - begun) / 2500) * 100);
      step();
      if (Number(walk.value) < 100) requestAnimationFrame(move);
    };
    requestAnimationFrame(move);
  };
  walk.addEventListener("input", () => {
    state.way = state.way && { ...state.way }; // ends the walk that moves by itself
    step();
  });
  find("walk-go").addEventListener("click", start);
  onEnter("walk-from", start);
  onEnter("walk-to", start);

  goTo(0, meanCode());
})();
