"use strict";

/* Arrays as they travel with the page: the kind of their numbers, their shape, and data in base64. */
const arrays = (() => {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  const fromHalf = (codes) => {
    const found = new Float32Array(codes.length);
    for (let i = 0; i < codes.length; i++) {
      const sign = codes[i] & 0x8000 ? -1 : 1, power = (codes[i] >> 10) & 31, rest = codes[i] & 1023;
      if (power === 0) found[i] = sign * rest * 2 ** -24;
      else if (power === 31) found[i] = rest ? NaN : sign * Infinity;
      else found[i] = sign * (1 + rest / 1024) * 2 ** (power - 15);
    }
    return found;
  };
  const KINDS = {
    f8: (raw) => new Float64Array(raw.buffer), f4: (raw) => new Float32Array(raw.buffer),
    f2: (raw) => fromHalf(new Uint16Array(raw.buffer)), u4: (raw) => new Uint32Array(raw.buffer),
    u2: (raw) => new Uint16Array(raw.buffer), u1: (raw) => raw,
  };
  const unpack = (packed) => {
    if (!packed) return packed;
    const values = KINDS[packed.kind](bytes(packed.data));
    if (packed.unit) for (let i = 0; i < values.length; i++) values[i] *= packed.unit;
    return { values, shape: packed.shape };
  };

  return { bytes, unpack };
})();
