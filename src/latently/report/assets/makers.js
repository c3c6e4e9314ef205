/* What makes a row from a code: low-rank Gaussians, or a chain of layers. Rows here are centred, in the units
   of the model; NaN marks a missing entry.

       x = base_k + L_k (shift_k + spread_k u) + noise,   u ~ N(0, I),   code z = origin + shift_k + spread_k u

   With degrees of freedom, u and noise are divided by the root of a chi-square variable over these: x ~ t.
*/
const makers = (() => {
  const LOG_2PI = Math.log(2 * Math.PI);

  /* The lower Cholesky factor of a matrix (q, q) by rows, in place. */
  const cholesky = (M, q) => {
    for (let j = 0; j < q; j++) {
      for (let i = j; i < q; i++) {
        let sum = M[i * q + j];
        for (let m = 0; m < j; m++) sum -= M[i * q + m] * M[j * q + m];
        if (i === j) M[j * q + j] = Math.sqrt(Math.max(sum, 1e-300));
        else M[i * q + j] = sum / M[j * q + j];
      }
    }
    return M;
  };
  const solveLower = (C, b, q) => {
    const x = Float64Array.from(b);
    for (let i = 0; i < q; i++) {
      for (let m = 0; m < i; m++) x[i] -= C[i * q + m] * x[m];
      x[i] /= C[i * q + i];
    }
    return x;
  };
  const solve = (C, b, q) => {
    const x = solveLower(C, b, q);
    for (let i = q - 1; i >= 0; i--) {
      for (let m = i + 1; m < q; m++) x[i] -= C[m * q + i] * x[m];
      x[i] /= C[i * q + i];
    }
    return x;
  };

  /* ln Gamma(x), to 1e-10, by Stirling's series from 10 on. */
  const logGamma = (x) => {
    let below = 0;
    for (; x < 10; x++) below += Math.log(x);
    const y = 1 / (x * x);
    return (x - 0.5) * Math.log(x) - x + 0.5 * LOG_2PI + (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / x - below;
  };
  /* A chi-square variable with at least one degree of freedom (Marsaglia and Tsang 2000). */
  const chiSquare = (nu, random, normal) => {
    if (nu < 2) return chiSquare(nu + 2, random, normal) * random() ** (2 / nu);
    const d = nu / 2 - 1 / 3, c = 1 / Math.sqrt(9 * d);
    for (;;) {
      const x = normal(), v = (1 + c * x) ** 3;
      if (v > 0 && Math.log(1 - random()) < 0.5 * x * x + d * (1 - v + Math.log(v))) return 2 * d * v;
    }
  };

  const gaussians = (plain) => {
    const part = (name) => arrays.unpack(plain[name])?.values;
    const [, D, q] = plain.maps.shape, K = plain.weights.shape[0];
    const weights = part("weights"), base = part("base"), maps = part("maps"), shift = part("shift");
    const spread = part("spread"), noise = part("noise"), origin = part("origin"), degrees = part("degrees");
    const own = (array, length, k) => (array.length === length ? 0 : k * length); // where component k begins
    const tables = new Map(plain.discrete.map((one) => [one.place, { values: arrays.unpack(one.values).values, logs: arrays.unpack(one.logs).values }]));
    /* Of a column that is no number: its place among the values, and the log probabilities of these. */
    const placeOf = ({ values }, v) => values.reduce((best, value, l) => (Math.abs(value - v) < Math.abs(values[best] - v) ? l : best), 0);
    const logsOf = ({ values, logs }, k) => logs.subarray(k * values.length, (k + 1) * values.length);
    const isNone = (x, j) => Number.isNaN(x[j]) || tables.has(j);
    const noiseOf = (k, j) => {
      const width = plain.noise.shape[1];
      return noise[own(noise, width, k) + (width === 1 ? 0 : j)];
    };

    const decode = (k, z) => {
      const x = new Float64Array(D), from = own(base, D, k), map = own(maps, D * q, k);
      for (let j = 0; j < D; j++) {
        let sum = base[from + j];
        for (let m = 0; m < q; m++) sum += maps[map + j * q + m] * (z[m] - origin[m]);
        x[j] = sum;
      }
      return x;
    };
    const mean = (k) => Float64Array.from({ length: q }, (_, m) => origin[m] + shift[k * q + m]);
    const means = Array.from({ length: K }, (_, k) => decode(k, mean(k)));

    /* The code z = mean + spread u of component k. */
    const spreadOut = (k, u) => {
      const z = mean(k);
      for (let m = 0; m < q; m++)
        if (spread) for (let r = 0; r < q; r++) z[m] += spread[k * q * q + m * q + r] * u[r];
        else z[m] += u[m];
      return z;
    };
    const loadings = Array.from({ length: K }, (_, k) => { // (D, q) on u
      const map = own(maps, D * q, k);
      if (!spread) return maps.subarray(map, map + D * q);
      const L = new Float64Array(D * q);
      for (let j = 0; j < D; j++)
        for (let r = 0; r < q; r++)
          for (let m = 0; m < q; m++) L[j * q + r] += maps[map + j * q + m] * spread[k * q * q + m * q + r];
      return L;
    });

    /* I + L' Psi^-1 L of the observed entries; the same for all complete rows. */
    const factors = new Array(K).fill(null);
    const precisionOf = (k, x, complete) => {
      if (complete && factors[k]) return factors[k];
      const M = new Float64Array(q * q), L = loadings[k];
      let logNoise = 0, seen = 0;
      for (let m = 0; m < q; m++) M[m * q + m] = 1;
      for (let j = 0; j < D; j++) {
        if (isNone(x, j)) continue;
        const psi = noiseOf(k, j);
        seen++;
        logNoise += Math.log(psi);
        for (let a = 0; a < q; a++)
          for (let b = 0; b <= a; b++) M[a * q + b] += (L[j * q + a] * L[j * q + b]) / psi;
      }
      const C = cholesky(M, q);
      let logDeterminant = logNoise;
      for (let m = 0; m < q; m++) logDeterminant += 2 * Math.log(C[m * q + m]);
      const found = { C, logDeterminant, seen };
      if (complete) factors[k] = found;
      return found;
    };
    /* Of a row in component k: ln p(x | k), the posterior mean of u, and Sigma^-1 (x - mean). */
    const within = (k, x, complete) => {
      const { C, logDeterminant, seen } = precisionOf(k, x, complete), L = loadings[k], mu = means[k];
      const b = new Float64Array(q), scaled = new Float64Array(D);
      let distance = 0;
      for (let j = 0; j < D; j++) {
        if (isNone(x, j)) continue;
        const gap = x[j] - mu[j];
        scaled[j] = gap / noiseOf(k, j);
        distance += gap * scaled[j];
        for (let m = 0; m < q; m++) b[m] += L[j * q + m] * scaled[j];
      }
      const half = solveLower(C, b, q), u = solve(C, b, q);
      for (let m = 0; m < q; m++) distance -= half[m] ** 2;
      for (let j = 0; j < D; j++) {
        if (isNone(x, j)) continue;
        let pull = 0;
        for (let m = 0; m < q; m++) pull += L[j * q + m] * u[m];
        scaled[j] -= pull / noiseOf(k, j);
      }
      let logDensity = -0.5 * (distance + logDeterminant + seen * LOG_2PI);
      if (degrees) {
        const nu = degrees[k], half = 0.5 * (nu + seen);
        logDensity = logGamma(half) - logGamma(0.5 * nu) - 0.5 * (seen * Math.log(nu * Math.PI) + logDeterminant)
          - half * Math.log1p(distance / nu);
      }
      for (const [j, table] of tables) if (!Number.isNaN(x[j])) logDensity += logsOf(table, k)[placeOf(table, x[j])];
      return { logDensity, u, away: scaled, C };
    };
    const isComplete = (x) => !x.some(Number.isNaN);
    /* ln p(x), the probabilities of components, the likeliest one and the code of the row in it. */
    const tell = (x) => {
      const complete = isComplete(x);
      const all = Array.from({ length: K }, (_, k) => within(k, x, complete));
      const joint = all.map((one, k) => one.logDensity + Math.log(weights[k]));
      const most = joint.reduce((a, b) => Math.max(a, b), -Infinity);
      const logDensity = most + Math.log(joint.reduce((sum, value) => sum + Math.exp(value - most), 0));
      const k = joint.indexOf(most);
      return {
        logDensity, component: k, code: spreadOut(k, all[k].u), within: all[k],
        probabilities: joint.map((value) => Math.exp(value - logDensity)),
      };
    };
    const logDensity = (x) => tell(x).logDensity;
    /* The code averaged over components, where all share one. */
    const sharedCode = (x) => {
      const complete = isComplete(x), { probabilities } = tell(x), z = new Float64Array(q);
      probabilities.forEach((probability, k) => {
        if (probability < 1e-12) return;
        const own = spreadOut(k, within(k, x, complete).u);
        for (let m = 0; m < q; m++) z[m] += probability * own[m];
      });
      return z;
    };

    /* The one entry whose change to its expectation, given the others, raises the density most. */
    const likelier = (x, told) => {
      const k = told.component, { away, C } = told.within, L = loadings[k];
      let best = null;
      for (let j = 0; j < D; j++) {
        if (Number.isNaN(x[j])) continue;
        if (tables.has(j)) {
          const table = tables.get(j), logs = logsOf(table, k), most = logs.indexOf(Math.max(...logs));
          const gain = logs[most] - logs[placeOf(table, x[j])];
          if (!best || gain > best.gain) best = { feature: j, value: table.values[most], gain };
          continue;
        }
        const psi = noiseOf(k, j), scaled = new Float64Array(q);
        for (let m = 0; m < q; m++) scaled[m] = L[j * q + m] / psi;
        const half = solveLower(C, scaled, q);
        const precision = 1 / psi - half.reduce((sum, value) => sum + value ** 2, 0); // of entry j given the others
        const gain = (0.5 * away[j] ** 2) / precision;
        if (!best || gain > best.gain) best = { feature: j, value: x[j] - away[j] / precision, gain };
      }
      return best;
    };
    /* Entries to change, one after the other, until the density reaches a limit. */
    const changes = (x, limit, most) => {
      const y = Float64Array.from(x), found = [];
      let told = tell(y);
      while (told.logDensity < limit && found.length < most) {
        const next = likelier(y, told);
        if (!next || next.gain < 1e-3) break;
        y[next.feature] = next.value;
        told = tell(y);
        found.push({ feature: next.feature, value: next.value, logDensity: told.logDensity });
      }
      return { found, reached: told.logDensity >= limit };
    };

    const draw = (k, random, normal, withNoise) => {
      const tail = degrees ? Math.sqrt(degrees[k] / chiSquare(degrees[k], random, normal)) : 1;
      const z = spreadOut(k, Float64Array.from({ length: q }, () => tail * normal()));
      const x = decode(k, z);
      if (!withNoise) return { z, x };
      for (let j = 0; j < D; j++) if (!tables.has(j)) x[j] += tail * Math.sqrt(noiseOf(k, j)) * normal();
      for (const [j, table] of tables) {
        const shares = logsOf(table, k).map(Math.exp);
        let rest = random() * shares.reduce((a, b) => a + b, 0);
        const at = shares.findIndex((share) => (rest -= share) < 0);
        x[j] = table.values[at < 0 ? shares.length - 1 : at];
      }
      return { z, x };
    };
    return {
      K, D, q, weights: Array.from(weights), common: plain.common, hasDensity: plain.density,
      decode, mean, tell, logDensity, sharedCode, changes, draw,
    };
  };

  /* -- layers -- */
  const EACH = {
    tanh: Math.tanh, relu: (v) => Math.max(v, 0), elu: (v) => (v > 0 ? v : Math.expm1(v)),
    softplus: (v) => (v > 30 ? v : Math.log1p(Math.exp(v))), logistic: (v) => 1 / (1 + Math.exp(-v)),
    ratio: (v) => v / (1 + v),
  };
  const linear = (layer) => {
    const weights = arrays.unpack(layer.weights), offset = arrays.unpack(layer.offset).values;
    const [n, m] = weights.shape;
    return (x) => {
      const y = Float64Array.from(offset);
      for (let i = 0; i < n; i++) {
        if (x[i] === 0) continue;
        for (let j = 0, at = i * m; j < m; j++, at++) y[j] += x[i] * weights.values[at];
      }
      return y;
    };
  };
  /* A transposed convolution with kernels of 3 by 3, stride 2 and padding 1. */
  const enlarge = (layer) => {
    const W = arrays.unpack(layer.weights).values, offset = arrays.unpack(layer.offset).values;
    const [cIn, h, w] = layer.from, [cOut, H, V] = layer.to;
    return (x) => {
      const y = new Float64Array(cOut * H * V);
      for (let o = 0; o < cOut; o++) y.fill(offset[o], o * H * V, (o + 1) * H * V);
      for (let c = 0; c < cIn; c++)
        for (let i = 0; i < h; i++)
          for (let j = 0; j < w; j++) {
            const value = x[(c * h + i) * w + j];
            if (value === 0) continue;
            for (let o = 0; o < cOut; o++)
              for (let a = 0; a < 3; a++) {
                const row = 2 * i - 1 + a;
                if (row < 0 || row >= H) continue;
                for (let b = 0; b < 3; b++) {
                  const column = 2 * j - 1 + b;
                  if (column >= 0 && column < V) y[(o * H + row) * V + column] += value * W[((c * cOut + o) * 3 + a) * 3 + b];
                }
              }
          }
      return y;
    };
  };
  const scale = (layer) => {
    const factor = arrays.unpack(layer.scale).values, offset = arrays.unpack(layer.offset).values;
    return (x) => x.map((value, j) => offset[j] + factor[j] * value);
  };
  const chain = (plain) => {
    const made = { linear, enlarge, scale };
    const steps = plain.layers.map((layer) => {
      if (made[layer.kind]) return made[layer.kind](layer);
      const each = EACH[layer.kind];
      return (x) => x.map(each);
    });
    const decode = (_, z) => steps.reduce((x, step) => step(x), Float64Array.from(z));
    return { K: 1, weights: [1], common: true, hasDensity: false, decode };
  };

  return { gaussians, chain };
})();
