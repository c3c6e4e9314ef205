/* The selected rows: found by words or numbers, listed, compared with the rest, saved; and shown in all tables
   and charts of the page, which select in turn. */
(() => {
  if (!rows) return;
  const { n, groups, features, moments, number } = rows;
  const find = (id) => document.getElementById(id);
  const panel = find("chosen-rows");
  if (!panel) return;
  const MOST_LISTED = 50, MOST_TRAITS = 6, FAINT = 0.3;
  const told = find("selected-told"), traits = find("selected-traits"), list = find("selected-rows");
  const density = rows.values.find((value) => value.feature === undefined && value !== rows.certainty);
  const plain = (text) => text.trim().toLowerCase();
  const made = (tag, text, given = {}) => {
    const element = Object.assign(document.createElement(tag), given);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  /* -- by words: a number, a name, or a condition such as "alcohol > 13" -- */
  const COMPARE = {
    "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
    "=": (a, b) => Math.abs(a - b) <= 1e-6 * Math.max(1, Math.abs(b)),
  };
  const condition = (text) => {
    const parts = /^(.*?)\s*(<=|>=|<|>|=)\s*(.*)$/.exec(text);
    if (!parts) return null;
    const [, name, sign, given] = parts;
    const value = [...rows.values, ...rows.axes].find((one) => plain(one.name) === plain(name));
    const level = value?.levels?.findIndex((one) => plain(one) === plain(given)) ?? -1;
    const limit = level >= 0 ? level : Number(given.replace(",", ".").replace("−", "-"));
    if (value && given !== "" && !Number.isNaN(limit)) return (i) => COMPARE[sign](value.at(i), limit);
    const group = groups.find((one) => plain(one.noun) === plain(name));
    const code = group && sign === "=" ? group.names.findIndex((one) => [plain(one), plain(one).replace(/^component /, "")].includes(plain(given))) : -1;
    return code >= 0 ? (i) => group.codes[i] === code : undefined;
  };
  const look = () => {
    const text = find("find-row").value;
    const i = rows.find(text);
    if (i >= 0) return rows.pick(i);
    const test = condition(text);
    if (test) return rows.selectWhere(test, `rows with ${text.trim()}`);
    told.textContent = test === undefined
      ? "This page has no such column; see the names in the colour menu."
      : "There is no such row on this page. Give a number, a name, or a condition such as log density < −20.";
  };
  find("find-row").addEventListener("keydown", (event) => event.key === "Enter" && look());
  find("find-go").addEventListener("click", look);
  find("select-none").addEventListener("click", () => rows.select(null));

  /* -- the list and what distinguishes it -- */
  const columnsOf = () => [
    ...groups.map((g) => ({ name: g.noun, text: (i) => g.names[g.codes[i]] })),
    ...(rows.certainty ? [{ name: "certainty", number: true, text: (i) => rows.certainty.at(i).toFixed(2) }] : []),
    ...(density ? [{ name: density.name, number: true, text: (i) => number(density.at(i)) }] : []),
    ...features.slice(0, 12).map((f) => ({ name: f.name, number: !f.levels, text: (i) => rows.cell(f, f.at(i)) })),
  ];
  const relist = () => {
    const chosen = [];
    if (rows.selected) for (let i = 0; i < n; i++) if (rows.selected[i]) chosen.push(i);
    find("select-none").disabled = !rows.selected;
    find("save-rows").textContent = rows.selected ? "Save these rows as CSV" : "Save all rows as CSV";
    list.hidden = !chosen.length;
    traits.hidden = !chosen.length;
    if (!rows.selected) {
      const ways = ["use the lasso", histograms.length && "drag over a histogram", find("pairs") && "drag over a pair of features", groups.length && "click a group"];
      told.textContent = `No rows are selected. To select some, ${ways.filter(Boolean).join(", or ")}.`;
      return;
    }
    told.textContent = `${chosen.length} of ${n} rows selected (${rows.said}).`
      + (chosen.length > MOST_LISTED ? ` The first ${MOST_LISTED} are listed.` : "");
    const columns = columnsOf();
    const head = document.createElement("tr");
    for (const name of ["row", ...columns.map((c) => c.name)]) head.append(made("th", name, { scope: "col" }));
    const lines = chosen.slice(0, MOST_LISTED).map((i) => {
      const line = document.createElement("tr"), name = made("th", undefined, { scope: "row" });
      const button = made("button", rows.nameOf(i), { type: "button", className: "plain" });
      button.addEventListener("click", () => rows.pick(i));
      name.append(button);
      line.append(name, ...columns.map((c) => made("td", c.text(i), { className: c.number ? "number" : "name" })));
      return line;
    });
    list.querySelector("thead").replaceChildren(head);
    list.querySelector("tbody").replaceChildren(...lines);
    const compared = features.filter((feature) => !feature.nominal).map((feature) => {
      let sum = 0, count = 0;
      for (const i of chosen) {
        const v = feature.at(i);
        if (!Number.isNaN(v)) [sum, count] = [sum + v, count + 1];
      }
      const { mean, deviation } = moments[rows.values.indexOf(feature)];
      return { name: feature.name, away: count && deviation > 0 ? (sum / count - mean) / deviation : 0 };
    });
    const strongest = compared.filter((one) => Math.abs(one.away) >= FAINT).sort((a, b) => Math.abs(b.away) - Math.abs(a.away));
    traits.textContent = strongest.length && chosen.length < n
      ? `Their means differ from those of all rows: ${strongest.slice(0, MOST_TRAITS)
        .map((one) => `${one.away > 0 ? "high" : "low"} ${one.name} (${one.away > 0 ? "+" : "−"}${Math.abs(one.away).toFixed(1)})`).join(", ")}, in standard deviations.`
      : "No mean of a feature differs much from that of all rows.";
  };

  /* -- saving -- */
  const cell = (value) => {
    let text = String(value);
    if (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = `'${text}`; // spreadsheets run formulas
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const rounded = (column, i) => {
    const v = column.at(i);
    if (Number.isNaN(v)) return "";
    return column.levels || column.days ? rows.cell(column, v) : Number(v.toPrecision(column.digits));
  };
  find("save-rows").addEventListener("click", () => {
    const columns = [
      { name: "row", text: (i) => rows.rowNumber(i) },
      ...(rows.data.names ? [{ name: "name", text: (i) => rows.nameOf(i) }] : []),
      ...groups.map((g) => ({ name: g.noun, text: (i) => (g.kind === "c" ? g.codes[i] : g.names[g.codes[i]]) })),
      ...rows.values.map((value) => ({ name: value.name, text: (i) => rounded(value, i) })),
    ];
    const lines = [columns.map((c) => cell(c.name)).join(",")];
    for (let i = 0; i < n; i++) if (rows.isSelected(i)) lines.push(columns.map((c) => cell(c.text(i))).join(","));
    save(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }), rows.selected ? "selected-rows.csv" : "rows.csv");
  });

  /* -- histograms: the selected part, and brushes -- */
  const histograms = [...document.querySelectorAll("svg[data-column]")].map((svg) => {
    const column = svg.dataset.column === "score" ? density : svg.dataset.column === "certainty" ? rows.certainty : features.find((f) => f.feature === +svg.dataset.column);
    if (!column) return null;
    const given = (name) => Number(svg.dataset[name]);
    const [low, high, bins] = [given("low"), given("high"), given("bins")];
    const [left, right, top, bottom] = [given("left"), given("right"), given("top"), given("bottom")];
    const layer = document.createElementNS("http://www.w3.org/2000/svg", "path");
    layer.setAttribute("class", "chosen");
    svg.append(layer);
    const shade = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    shade.setAttribute("class", "brush");
    svg.append(shade);
    const binOf = (v) => Math.min(bins - 1, Math.max(0, Math.floor(((v - low) / (high - low)) * bins)));
    const whole = new Uint32Array(bins);
    for (let i = 0; i < n; i++) if (!Number.isNaN(column.at(i))) whole[binOf(column.at(i))]++;
    const highest = Math.max(...whole, 1), wide = (right - left) / bins;
    let from = null;
    const valueAt = (event) => {
      const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
      const x = ((event.clientX - box.left) / box.width) * view.width;
      return low + ((high - low) * (Math.min(Math.max(x, left), right) - left)) / (right - left);
    };
    svg.classList.add("brushed");
    svg.addEventListener("pointerdown", (event) => {
      from = valueAt(event);
      svg.setPointerCapture(event.pointerId);
    });
    const paint = (a, b) => {
      const place = (v) => left + ((v - low) / (high - low)) * (right - left);
      shade.setAttribute("x", place(Math.min(a, b)));
      shade.setAttribute("width", Math.abs(place(b) - place(a)));
      shade.setAttribute("y", top);
      shade.setAttribute("height", bottom - top);
    };
    svg.addEventListener("pointermove", (event) => from !== null && paint(from, valueAt(event)));
    svg.addEventListener("pointerup", (event) => {
      if (from === null) return;
      let [a, b] = [from, valueAt(event)].sort((one, other) => one - other);
      from = null;
      shade.setAttribute("width", 0);
      const step = (high - low) / bins;
      if (b - a < step) [a, b] = [low + binOf(a) * step, low + (binOf(a) + 1) * step]; // one bar
      const [below, above] = [binOf(a) === 0 ? -Infinity : a, binOf(b) === bins - 1 && b >= high - step ? Infinity : b];
      rows.selectWhere((i) => column.at(i) >= below && column.at(i) <= above, `${column.name} from ${rows.cell(column, a)} to ${rows.cell(column, b)}`);
    });
    return () => {
      const counts = new Uint32Array(bins);
      if (rows.selected) for (let i = 0; i < n; i++) if (rows.selected[i] && !Number.isNaN(column.at(i))) counts[binOf(column.at(i))]++;
      let path = "";
      counts.forEach((count, bin) => {
        if (!count) return;
        const tall = Math.max((count / highest) * (bottom - top), 0.5);
        path += `M${left + bin * wide},${bottom}v${-tall}h${wide * 0.85}v${tall}z`;
      });
      layer.setAttribute("d", path);
      svg.classList.toggle("faded", !!rows.selected);
    };
  }).filter(Boolean);

  /* -- tables and heat maps by component -- */
  const inButton = (cell, act) => {
    const button = made("button", undefined, { type: "button", className: "plain" });
    button.append(...cell.childNodes);
    button.addEventListener("click", act);
    cell.append(button);
  };
  const lines = [...document.querySelectorAll("tr[data-code]")].map((line) => {
    const code = +line.dataset.code, group = groups[0];
    inButton(line.querySelector("th"), () => rows.selectWhere((i) => group.codes[i] === code, group.names[code]));
    const note = made("small");
    line.querySelector("th").append(note);
    return () => {
      let size = 0;
      if (rows.selected) for (let i = 0; i < n; i++) if (rows.selected[i] && group.codes[i] === code) size++;
      note.textContent = size ? `${size} selected` : "";
      for (const part of document.querySelectorAll(`.cells [data-group="${code}"]`)) part.classList.toggle("dim", !!rows.selected && !size);
    };
  });
  for (const part of document.querySelectorAll(".cells [data-group]"))
    part.addEventListener("click", () => {
      const code = +part.dataset.group, feature = rows.values.findIndex((value) => value.feature === +part.dataset.feature);
      rows.selectWhere((i) => groups[0].codes[i] === code, groups[0].names[code]);
      const menu = find("colour");
      if (part.dataset.feature && feature >= 0 && menu) {
        menu.value = `v${feature}`;
        menu.dispatchEvent(new Event("change"));
      }
    });
  const named = [...document.querySelectorAll("tr[data-row]")].map((line) => {
    const i = rows.find(line.dataset.row);
    if (i < 0) return () => {};
    inButton(line.querySelector("th"), () => rows.pick(i));
    return () => {
      line.classList.toggle("chosen", !!rows.selected && rows.selected[i] === 1);
      line.classList.toggle("picked", rows.picked === i);
    };
  });

  const everywhere = () => {
    relist();
    [...histograms, ...lines, ...named].forEach((update) => update());
  };
  document.addEventListener("selected", everywhere);
  document.addEventListener("picked", () => {
    if (rows.picked >= 0 && !find("explorer")) told.textContent = `Picked ${rows.nameOf(rows.picked)}: ${rows.farthest(rows.picked, 8).map((one) => `${one.feature.name} ${rows.cell(one.feature, one.value)}`).join(", ")}.`;
    named.forEach((update) => update());
  });
  everywhere();
})();
