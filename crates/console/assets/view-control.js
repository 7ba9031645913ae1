// The control plane: who belongs to it, who leads, how far each is.

import { ask } from "./api.js";
import { h, fill, panel, facts } from "./dom.js";
import { follow } from "./live.js";
import { count, counted, duration, word } from "./text.js";
import { membersTable } from "./view-overview.js";
import { mark } from "./widgets.js";

export async function control({ main, signal }) {
  const body = h("div", {});
  fill(main, h("h1", {}, "Control plane"), h("p", { class: "lead" }, "As the member sees it that serves this page."), body);
  const refresh = async () => {
    const cluster = await ask("cluster", {}, signal);
    fill(body, draw(cluster));
    return cluster.appliedIndex;
  };
  // Members change without an event of the pool.
  await follow({ signal, pace: 1000, refresh, always: true });
}

function draw(cluster) {
  const leader = cluster.leader ? cluster.leader.name || "member " + cluster.leader.id : "none is known";
  return h("div", { class: "panels" },
    panel("Members", "", membersTable(cluster),
      Number(cluster.leader && cluster.leader.id) === Number(cluster.memberId) ? null
        : h("p", { class: "quiet-text" }, h("br"), "How far the others are, only the leader knows; open the console there to see it.")),
    panel("Agreement", "half", facts(
      ["Cluster", h("code", {}, cluster.clusterId)],
      ["Leader", h("span", { "data-leader": true }, leader)],
      ["Changes", cluster.writable ? mark("good", "accepted") : mark("lost", "not accepted now")],
      ["Term", count(cluster.term)],
      ["Voters are being changed", cluster.changingVoters ? "yes" : "no"],
      ["Release level", `${cluster.level} of ${cluster.highestLevel}` + (cluster.levelHeld ? ", held by the pool's settings" : "")],
    )),
    panel("This member", "half", facts(
      ["Id", cluster.memberId],
      ["Role", word(cluster.role, "MEMBER_ROLE_")],
      ...(cluster.refused ? [["Takes no part", mark("lost", cluster.refused)]] : []),
      ["Release", cluster.version],
      ["Up for", duration(cluster.uptime)],
      ["Known to be current", cluster.staleness ? duration(cluster.staleness) + " ago" : "not since it started"],
      ["Clock", cluster.clockOffset ? `${duration(cluster.clockOffset)} ahead of the members' agreement` + (cluster.clockOff ? ", too far" : "") : "not compared with others"],
      ["Last entry", count(cluster.lastIndex)],
      ["Committed", count(cluster.committedIndex)],
      ["Applied", `${count(cluster.appliedIndex)}, ${counted(Number(cluster.committedIndex) - Number(cluster.appliedIndex), "entry", "entries")} behind`],
      ["Newest snapshot", Number(cluster.snapshotIndex) ? "up to entry " + count(cluster.snapshotIndex) : "none yet"],
      ["Removed from the log", "up to entry " + count(cluster.purgedIndex)],
    )));
}
