// The map as the server sends it: columns of numbers, and then the rows that change.

import { BLOCK_STATES } from "./text.js";

/** The columns that a changed row carries behind its place, in their order. */
const COLUMNS = ["model", "offered", "free", "held", "running", "draining", "lost", "offline", "job", "queue", "jobs", "busy"];

export class MapData {
  constructor(whole) {
    this.revision = whole.revision;
    this.models = whole.models;
    this.queues = whole.queues;
    this.nodes = [];
    let first = 0;
    for (const [name, state, eligibility, cards] of whole.nodes) {
      this.nodes.push({ name, state, eligibility, first, cards });
      first += cards;
    }
    this.size = first;
    this.index = Uint32Array.from(whole.cards.index);
    // Jobs are numbered beyond 32 bits; everything else is small.
    for (const column of COLUMNS) this[column] = column === "job" ? Float64Array.from(whole.cards[column]) : Uint32Array.from(whole.cards[column]);
    this.nodeOf = new Uint32Array(first);
    this.nodes.forEach((node, place) => this.nodeOf.fill(place, node.first, node.first + node.cards));
  }

  /** Takes in what changed. */
  change({ revision, nodes, cards, models, queues }) {
    this.revision = revision;
    this.models.push(...models);
    this.queues.push(...queues);
    for (const [place, state, eligibility] of nodes) Object.assign(this.nodes[place], { state, eligibility });
    for (const [place, ...values] of cards) COLUMNS.forEach((column, at) => { this[column][place] = values[at]; });
  }

  /** Blocks of a card by state. */
  blocks(card) {
    return Object.fromEntries(BLOCK_STATES.map((state) => [state, this[state][card]]));
  }

  /** All blocks by state. */
  totals() {
    return Object.fromEntries(BLOCK_STATES.map((state) => [state, this[state].reduce((sum, some) => sum + some, 0)]));
  }

  /** Blocks of a node by state. */
  nodeBlocks(node) {
    const sums = Object.fromEntries(BLOCK_STATES.map((state) => [state, 0]));
    for (let card = node.first; card < node.first + node.cards; card++) for (const state of BLOCK_STATES) sums[state] += this[state][card];
    return sums;
  }

  /** The share of what is granted of a card that computes, or null where nothing is granted or nobody told. */
  share(card) {
    return this.busy[card] > 100 ? null : this.busy[card] / 100;
  }

  /** The state that a card is in, in one word: what is wrong before what is well. */
  word(card) {
    if (this.lost[card]) return "lost";
    if (this.draining[card]) return "draining";
    const used = this.running[card] + this.held[card];
    if (this.offline[card] > used && this.offline[card] >= this.free[card]) return "offline";
    if (this.held[card] > this.running[card]) return "held";
    return used ? "running" : "free";
  }
}
