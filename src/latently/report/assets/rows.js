/* The rows as the page has them, which of them are selected, and which one is picked.

   `rows.select(mask, words)` and `rows.pick(i)` tell all parts of the page, by the events "selected" and "picked".
*/
const rows = (() => {
  const holder = document.getElementById("rows");
  if (!holder) return null;
  const data = JSON.parse(holder.textContent);
  const n = data.count;

  const column = (c) => {
    const raw = arrays.bytes(c.data);
    if (c.width === 4) {
      const exact = new Float32Array(raw.buffer), span = c.high - c.low || 1;
      const codes = Uint16Array.from(exact, (v) => (Number.isNaN(v) ? 65535 : Math.round((65534 * (v - c.low)) / span)));
      return { name: c.name, feature: c.feature, levels: c.levels, nominal: c.nominal, days: c.days, low: c.low, high: c.high, codes, top: 65534, at: (i) => exact[i], digits: 7 };
    }
    const codes = c.width === 2 ? new Uint16Array(raw.buffer) : raw;
    const top = c.width === 2 ? 65534 : 254;
    const at = (i) => (codes[i] > top ? NaN : c.low + ((c.high - c.low) * codes[i]) / top);
    const digits = c.width === 2 ? 5 : 3;
    return { name: c.name, feature: c.feature, levels: c.levels, nominal: c.nominal, days: c.days, low: c.low, high: c.high, codes, top, at, digits };
  };
  const axes = data.axes.map(column);
  const values = data.values.map(column);
  const certainty = data.certainty === null ? null : values[data.certainty];
  const codesOf = (g) => (g.width === 1 ? arrays.bytes(g.data) : new Uint16Array(arrays.bytes(g.data).buffer));
  const groups = data.groups.map((g) => ({ ...g, codes: codesOf(g) }));
  let numbers = null;
  if (data.rows) {
    const raw = arrays.bytes(data.rows.data), gaps = data.rows.width === 1 ? raw : new Int32Array(raw.buffer);
    let at = 0;
    numbers = Uint32Array.from(gaps, (gap) => (at += gap));
  }

  const number = (v) => {
    if (Number.isNaN(v)) return "missing";
    const size = Math.abs(v);
    if (size >= 1e9 || (size > 0 && size < 1e-3)) return v.toExponential(1).replace("-", "−");
    return String(+v.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3)).replace("-", "−");
  };
  /* A value of a column: the name of a level, a date, or a number. */
  const cell = (c, v) => {
    if (Number.isNaN(v)) return "missing";
    if (c.levels) return c.levels[Math.max(0, Math.min(c.levels.length - 1, Math.round(v)))];
    return c.days ? new Date(Math.round(v) * 864e5).toISOString().slice(0, 10) : number(v);
  };
  const rowNumber = (i) => (numbers ? numbers[i] : i + 1);
  const nameOf = (i) => (data.names ? data.names[i] : `row ${rowNumber(i)}`);
  let byNumber = null;
  /* The row with this number or name, as a user types it; -1 without. */
  const find = (text) => {
    const wanted = text.trim();
    if (data.names) {
      const exact = data.names.indexOf(wanted);
      if (exact >= 0) return exact;
    }
    const typed = /^(?:row\s*)?#?(\d+)$/i.exec(wanted);
    if (typed) {
      byNumber ??= new Map(Array.from({ length: n }, (_, i) => [rowNumber(i), i]));
      return byNumber.get(+typed[1]) ?? -1;
    }
    if (!data.names || !wanted) return -1;
    return data.names.findIndex((name) => name.toLowerCase().includes(wanted.toLowerCase()));
  };

  /* Features that a row has farthest from their mean, in standard deviations. */
  const moments = values.map((value) => {
    let count = 0, sum = 0, squares = 0;
    for (let i = 0; i < n; i++) {
      const v = value.at(i) - value.low;
      if (Number.isNaN(v)) continue;
      count++;
      sum += v;
      squares += v * v;
    }
    const mean = sum / Math.max(count, 1);
    return { mean: mean + value.low, deviation: Math.sqrt(Math.max(squares / Math.max(count, 1) - mean * mean, 0)) };
  });
  const features = values.filter((value) => value.feature !== undefined);
  const farthest = (i, most) =>
    features
      .map((feature) => {
        const { mean, deviation } = moments[values.indexOf(feature)], v = feature.at(i);
        return { feature, value: v, away: deviation > 0 && !feature.nominal && !Number.isNaN(v) ? (v - mean) / deviation : 0 };
      })
      .sort((a, b) => Math.abs(b.away) - Math.abs(a.away))
      .slice(0, most);

  const found = {
    data, n, axes, values, features, moments, certainty, groups, number, cell, rowNumber, nameOf, find, farthest,
    selected: null, // one byte for each row; null if none is
    said: "",
    picked: -1,
    isSelected: (i) => !found.selected || found.selected[i] === 1,
    size: () => (found.selected ? found.selected.reduce((sum, one) => sum + one, 0) : n),
    select: (mask, words = "") => {
      found.selected = mask;
      found.said = mask ? words : "";
      document.dispatchEvent(new Event("selected"));
    },
    selectWhere: (test, words) => found.select(Uint8Array.from({ length: n }, (_, i) => (test(i) ? 1 : 0)), words),
    pick: (i) => {
      found.picked = i;
      document.dispatchEvent(new Event("picked"));
    },
  };
  return found;
})();
