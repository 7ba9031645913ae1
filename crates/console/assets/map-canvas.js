// Drawing all cards on a canvas: nodes beside one another, their cards as cells.
//
// Only what can be seen is drawn, straight into the pixels, so that 100,000 cards take a few milliseconds. The canvas is as
// large as the window on the map; a spacer below it makes the window scroll.

/** Most cards beside one another within a node. */
const BREADTH = 16;

const rgb = (text) => {
  const value = parseInt(text.trim().slice(1), 16);
  // As the pixels of a canvas lie in memory: alpha, blue, green, red.
  return (0xff << 24 | (value & 0xff) << 16 | value & 0xff00 | value >> 16) >>> 0;
};

const mixed = (from, to, share) => {
  const part = (shift) => Math.round((from >>> shift & 0xff) * (1 - share) + (to >>> shift & 0xff) * share) << shift;
  return (0xff << 24 | part(16) | part(8) | part(0)) >>> 0;
};

/** Colours of jobs and queues: those of Okabe and Ito, each in three shades. */
const MANY = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800"];

export class MapCanvas {
  constructor(window, spacer, canvas) {
    Object.assign(this, { window, spacer, canvas, data: null, cell: 0, zoom: 0, chosen: -1, lit: null, colour: "state" });
    this.context = canvas.getContext("2d", { alpha: false });
    this.asked = false;
    this.readColours();
    window.addEventListener("scroll", () => this.draw(), { passive: true });
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => rgb(style.getPropertyValue("--" + name));
    this.colours = Object.fromEntries(["free", "running", "held", "draining", "lost", "offline", "surface", "text"].map((name) => [name, read(name)]));
    this.shades = MANY.map(rgb).flatMap((colour) => [colour, mixed(colour, 0xffffffff, 0.35), mixed(colour, 0xff000000, 0.3)]);
  }

  show(data) {
    this.data = data;
    this.lay();
  }

  /** Finds the size of cells: as large as fits the window, or larger when somebody zooms in. */
  lay() {
    const { data, window } = this;
    const width = window.clientWidth;
    // One that is not shown has no width; it is told once it has.
    if (!data || !width) return;
    // As tall as its content, and never taller than the style allows.
    const tallest = Math.min(0.64 * innerHeight, 720);
    const most = data.nodes.reduce((largest, node) => Math.max(largest, node.cards), 1);
    this.breadth = Math.min(BREADTH, most);
    this.depth = Math.ceil(most / this.breadth);
    const rows = (cell) => {
      const columns = Math.max(1, Math.floor(width / (this.breadth * cell + this.gap(cell))));
      return [columns, Math.ceil(data.nodes.length / columns)];
    };
    let cell = 3;
    while (cell < 32 && rows(cell + 1)[1] * (this.depth * (cell + 1) + this.gap(cell + 1)) <= tallest) cell++;
    this.cell = Math.min(48, cell * 2 ** this.zoom | 0);
    [this.columns, this.rows] = rows(this.cell);
    this.step = [this.breadth * this.cell + this.gap(this.cell), this.depth * this.cell + this.gap(this.cell)];
    window.style.setProperty("--content", this.rows * this.step[1] + 2 + "px");
    const height = window.clientHeight;
    // What a browser can show sharply, it is given.
    this.scale = Math.min(globalThis.devicePixelRatio || 1, 2) | 0 || 1;
    this.canvas.width = width * this.scale;
    this.canvas.height = height * this.scale;
    this.canvas.style.setProperty("width", width + "px");
    this.canvas.style.setProperty("height", height + "px");
    this.spacer.style.setProperty("height", Math.max(0, this.rows * this.step[1] - height) + "px");
    this.pixels = new ImageData(this.canvas.width, this.canvas.height);
    this.words = new Uint32Array(this.pixels.data.buffer);
    this.draw();
  }

  gap(cell) {
    return cell < 6 ? 2 : Math.ceil(cell / 4);
  }

  /** Draws with the next frame, once for all that asks until then. */
  draw() {
    if (this.asked || !this.pixels) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      const began = performance.now();
      this.paint();
      // Read by tests, and by whoever wonders.
      this.canvas.dataset.millis = (performance.now() - began).toFixed(1);
      this.canvas.dataset.revision = this.data.revision;
    });
  }

  /** Where a card is on the whole map, in pixels of the page. */
  place(card) {
    const { data, columns, step, cell, breadth } = this;
    const node = data.nodeOf[card];
    const within = card - data.nodes[node].first;
    return [node % columns * step[0] + within % breadth * cell, Math.floor(node / columns) * step[1] + Math.floor(within / breadth) * cell];
  }

  /** The card at a point of the window, or -1. */
  at(x, y) {
    const { data, columns, step, cell, breadth } = this;
    if (!data) return -1;
    const down = y + this.window.scrollTop;
    const [column, row] = [Math.floor(x / step[0]), Math.floor(down / step[1])];
    const node = data.nodes[row * columns + column];
    const [left, top] = [Math.floor((x - column * step[0]) / cell), Math.floor((down - row * step[1]) / cell)];
    const within = top * breadth + left;
    return column < columns && node && left < breadth && within < node.cards ? node.first + within : -1;
  }

  paint() {
    const { data, words, step, columns, cell, scale } = this;
    words.fill(this.colours.surface);
    const top = this.window.scrollTop;
    const first = Math.floor(top / step[1]) * columns;
    const last = Math.min(data.nodes.length, (Math.floor((top + this.window.clientHeight) / step[1]) + 1) * columns);
    // Cells that touch are told apart by a line, where there is room for one.
    const size = (cell > 4 ? cell - 1 : cell) * scale;
    const wide = this.canvas.width;
    for (let place = first; place < last; place++) {
      const node = data.nodes[place];
      const [left, above] = [place % columns * step[0], Math.floor(place / columns) * step[1] - top];
      for (let within = 0; within < node.cards; within++) {
        const x = (left + within % this.breadth * cell) * scale;
        const y = (above + (within / this.breadth | 0) * cell) * scale;
        if (size >= 6) {
          this.fillCell(node.first + within, x, y, size);
          continue;
        }
        // Most cells by far: one colour each, straight into the pixels.
        const colour = this.colourOf(node.first + within);
        for (let down = Math.max(0, y); down < y + size; down++) {
          for (let at = down * wide + x; at < down * wide + x + size; at++) words[at] = colour;
        }
      }
    }
    this.context.putImageData(this.pixels, 0, 0);
    this.outline(top);
  }

  used(card) {
    const { data } = this;
    return data.running[card] + data.held[card] + data.draining[card] + data.lost[card];
  }

  /** The colour of the job, or of the queue, that a card is used by. */
  owner(card) {
    const { data, shades } = this;
    const key = this.colour === "job" ? data.job[card] : data.queue[card] * 3;
    return data.job[card] ? shades[key % shades.length] : this.colours.free;
  }

  /** The one colour of a card whose cell is small. */
  colourOf(card) {
    const { data, colours } = this;
    if (this.lit && !this.lit.has(card)) return mixed(colours.free, colours.surface, 0.5);
    const used = this.used(card);
    const all = used + data.free[card] + data.offline[card];
    if (this.colour === "use") return all ? mixed(colours.free, colours.running, used / all) : colours.offline;
    const word = all ? data.word(card) : "offline";
    if (this.colour === "work") {
      const share = data.share(card);
      return !used ? colours[word] : share === null ? colours.held : mixed(colours.lost, colours.running, share);
    }
    if (this.colour !== "state") return used ? this.owner(card) : colours[word];
    return word === "running" ? mixed(colours.free, colours.running, 0.35 + 0.65 * used / all) : colours[word];
  }

  /** Fills a cell that has room for more than a colour. */
  fillCell(card, x, y, size) {
    const { data, colours } = this;
    const used = this.used(card);
    const all = used + data.free[card] + data.offline[card];
    if (this.colour === "use" || this.colour === "work" || !all || (this.lit && !this.lit.has(card))) {
      return this.rectangle(x, y, size, size, this.colourOf(card), all ? "" : "offline");
    }
    const parts = [];
    if (this.colour !== "state") {
      parts.push([used, this.owner(card), ""], [data.offline[card], colours.offline, "offline"], [data.free[card], colours.free, ""]);
    } else {
      for (const state of ["running", "held", "draining", "lost", "offline", "free"]) parts.push([data[state][card], colours[state], state]);
    }
    // From below, as a glass is filled; the last part takes what rounding leaves.
    let bottom = size;
    parts.filter(([blocks]) => blocks).forEach(([blocks, colour, state], place, some) => {
      const height = place === some.length - 1 ? bottom : Math.min(bottom, Math.ceil(size * blocks / all));
      this.rectangle(x, y + bottom - height, size, height, colour, state);
      bottom -= height;
    });
  }

  /** Fills a rectangle; those of states that are not well have a pattern, too. */
  rectangle(x, y, width, height, colour, state) {
    const { words, canvas } = this;
    const dark = mixed(colour, 0xff000000, 0.45);
    const patterned = width >= 6 && (state === "lost" || state === "draining" || state === "offline");
    for (let down = Math.max(0, y); down < Math.min(canvas.height, y + height); down++) {
      const start = down * canvas.width;
      if (!patterned) {
        words.fill(colour, start + x, start + Math.min(canvas.width, x + width));
        continue;
      }
      for (let across = x; across < Math.min(canvas.width, x + width); across++) {
        const [left, top] = [across - x, down - y];
        const line = state === "offline" ? left % 4 === 0 : (left + top) % 5 === 0 || (state === "lost" && (left - top + 500) % 5 === 0);
        words[start + across] = line ? dark : colour;
      }
    }
  }

  outline(top) {
    if (this.chosen < 0 || this.chosen >= this.data.size) return;
    const [x, y] = this.place(this.chosen);
    const { context, cell, scale } = this;
    context.lineWidth = 2 * scale;
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--text");
    context.strokeRect((x - 2) * scale, (y - top - 2) * scale, (cell + 3) * scale, (cell + 3) * scale);
  }

  /** Chooses a card, and scrolls to where it is. */
  choose(card) {
    this.chosen = card;
    if (card >= 0) {
      const [, y] = this.place(card);
      const { window, cell } = this;
      if (y < window.scrollTop) window.scrollTop = Math.max(0, y - cell);
      else if (y + cell > window.scrollTop + window.clientHeight) window.scrollTop = y + 2 * cell - window.clientHeight;
    }
    this.draw();
  }

  /** The card beside another one: left, right, or in the node above or below. */
  beside(card, key) {
    const { data, columns } = this;
    if (card < 0) return data.size ? 0 : -1;
    if (key === "ArrowRight") return Math.min(data.size - 1, card + 1);
    if (key === "ArrowLeft") return Math.max(0, card - 1);
    const node = data.nodeOf[card];
    const within = card - data.nodes[node].first;
    const deeper = within + (key === "ArrowDown" ? this.breadth : -this.breadth);
    if (deeper >= 0 && deeper < data.nodes[node].cards) return data.nodes[node].first + deeper;
    const other = data.nodes[node + (key === "ArrowDown" ? columns : -columns)];
    return other && other.cards ? other.first + Math.min(within % this.breadth, other.cards - 1) : card;
  }
}
