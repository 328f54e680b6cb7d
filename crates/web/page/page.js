"use strict";
// The token is the part of the address after `#`. A browser never sends this part to a server, so the page sends the
// token in a header.
const token = location.hash.slice(1) || sessionStorage.getItem("token") || "";
if (token) sessionStorage.setItem("token", token);
const $ = id => document.getElementById(id);
const esc = text => String(text).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const query = fields => new URLSearchParams(fields).toString();

let state = null, subject = null, graph = null, graphOf = "", viewed = null, frames = [], live = true, shown = null;

async function ask(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
  if (answer.ok) return answer;
  let why = answer.statusText;
  try { why = (await answer.json()).error; } catch (e) { /* the status says enough */ }
  const error = new Error(why);
  error.status = answer.status;
  throw error;
}

function say(good, text) {
  $("connection").className = good ? "good" : "bad";
  $("connection").textContent = text;
}

// The subjects that the page can show: the runs, and the daemons that belong to no run.
function subjects() {
  const runs = state.runs.map(r => ({ key: `run:${r.id}`, label: `run ${r.id} (${r.engine})`, run: r, place: r.place }));
  const taken = new Set(runs.map(r => r.place));
  const daemons = state.daemons.filter(d => !taken.has(d.place) || d.place === "the node's daemon")
    .map(d => ({ key: `place:${d.place}`, label: d.place, run: null, place: d.place }));
  return runs.concat(daemons);
}

function chooseSubject() {
  const all = subjects(), wanted = subject && all.find(s => s.key === subject.key);
  subject = wanted || all.find(s => s.run) || all[0] || null;
  const menu = $("subject"), options = all.map(s => `<option value="${esc(s.key)}">${esc(s.label)}</option>`).join("");
  if (menu.dataset.options !== options) { menu.innerHTML = options; menu.dataset.options = options; }
  if (subject) menu.value = subject.key;
}

function daemon() {
  const found = subject && state.daemons.find(d => d.place === subject.place);
  const empty = { members: [], ports: [], series: [], regions: [], items: [], workflows: [] };
  if (!found) return empty;
  if (!subject.run) return found;
  const only = list => list.filter(x => x.workflow === subject.run.workflow);
  return { ...found, workflows: found.workflows.filter(w => w.name === subject.run.workflow), members: only(found.members),
    ports: only(found.ports), series: only(found.series), regions: only(found.regions), items: only(found.items) };
}

function table(head, rows, none) {
  if (!rows.length) return `<p class="empty">${none}</p>`;
  const kind = h => h.rest ? ' class="rest"' : h.names ? ' class="names"' : "";
  const cell = (c, i) => `<td${kind(head[i])}>${c}</td>`;
  return `<table><thead><tr>${head.map(h => `<th${h.rest ? ' class="rest"' : ""}>${h.name}</th>`).join("")}</tr></thead>` +
    `<tbody>${rows.map(r => `<tr>${r.map(cell).join("")}</tr>`).join("")}</tbody></table>`;
}
const col = (name, rest) => ({ name, rest });

function render() {
  chooseSubject();
  const d = daemon(), run = subject && subject.run;
  const sum = (list, f) => list.reduce((all, x) => all + f(x), 0);
  const figures = [
    [count(sum(d.ports, p => p.rate)), "messages a second"],
    [bytes(sum(d.ports, p => p.byte_rate)) + "/s", "handed over"],
    [count(sum(d.series, s => s.rate)), "versions a second"],
    [bytes(sum(d.workflows, w => w.reserved)), "shared memory"],
  ];
  if (run) figures.unshift([`${run.ranks.filter(r => r.state === "runs").length} of ${run.ranks.length}`, "tasks run"]);
  $("summary").innerHTML = figures.map(([b, s]) => `<div class="figure"><b>${b}</b><span>${s}</span></div>`).join("");
  $("trouble").hidden = !(d.trouble || (run && run.stopping));
  $("trouble").textContent = d.trouble || (run && run.stopping) || "";
  renderTasks(d, run);
  renderPorts(d);
  renderSeries(d);
  $("items-card").hidden = !d.items.length;
  $("items").innerHTML = table([col("item"), col("owner"), col("since", true), col("size"), col("handed on", true), col("copies", true), col("waiting", true)],
    d.items.map(i => [esc(i.name), esc(owner(i)), age(i.since_seconds), bytes(i.size), i.transfers, i.copies, i.waiting]), "no items");
  renderMemory(d);
  $("events").innerHTML = state.events.slice().reverse().map(e =>
    `<li><time>${new Date(e.time_ms).toLocaleTimeString()}</time><span class="${e.kind}">${esc(e.text)}</span></li>`).join("") ||
    '<li class="soft">nothing since this page is served</li>';
  colourFlow(d, run);
}

const CLASS = { runs: "good", waits: "soft", ended: "soft", failed: "bad" };
function renderTasks(d, run) {
  const state = r => `<span class="${CLASS[r.state]}">${r.state}${r.code ? ` (${r.code})` : ""}</span>`;
  const rows = run
    ? run.ranks.map(r => [esc(r.name), state(r) + steps(r.progress), age(r.seconds), r.cpus.toFixed(2), bytes(r.memory), r.pid || "–"])
    : d.members.map(m => [`${esc(m.workflow)}/${esc(m.task)}${m.rank ? "." + m.rank : ""}`, (m.connected ? '<span class="good">connected</span>' : '<span class="wait">away</span>') + steps(m.progress),
      "–", m.cpus.toFixed(2), bytes(m.memory), m.pid]);
  $("tasks").innerHTML = table([col("task"), col("state"), col("age", true), col("CPUs"), col("memory"), col("process", true)], rows, "no task is connected");
  $("log-card").hidden = !run;
  const menu = $("log-task"), options = run ? run.ranks.map(r => `<option>${esc(r.name)}</option>`).join("") : "";
  if (menu.dataset.options !== options) { menu.innerHTML = options; menu.dataset.options = options; }
}

// Makes a bar for a task that reports its progress.
function steps(progress) {
  if (!progress) return "";
  const [done, of] = progress, part = Math.floor(100 * done / of);
  return `<span class="steps" title="${done} of ${of} steps"><i style="width:${part}%"></i></span><span class="small">${count(done)} of ${count(of)}</span>`;
}

// Formats an age such as `3 min old`, with spaces at which no line is broken.
function old(ms) { return `${age(Math.max(0, (state.time_ms - ms) / 1000))} old`.replace(/ /g, "\u00a0"); }

function renderPorts(d) {
  $("ports-card").hidden = !d.ports.length;
  $("ports").innerHTML = table([col("port"), col("a second"), col("bytes a second", true), col("in it"), col("sent", true), { name: "waits", names: true }], d.ports.map(p => {
    const waits = p.ends.filter(e => e.waiting && e.alive).map(e => esc(e.task)), dead = p.ends.filter(e => !e.alive).map(e => esc(e.task));
    const who = [waits.length ? `<span class="wait">${waits.join(", ")}</span>` : "", dead.length ? `<span class="bad">gone: ${dead.join(", ")}</span>` : ""].filter(Boolean);
    return [`${esc(p.name)}<br><span class="small">${esc(p.pattern)}, ${old(p.since_ms)}</span>`, count(p.rate), bytes(p.byte_rate), `${p.in_flight}/${p.capacity}`, count(p.messages), who.join("<br>") || "–"];
  }), "no ports");
}

// Formats the owner of an item as `transfer` takes it: task/rank.
function owner(item) {
  return item.owner.replace(/^task '([^']*)'(?:, rank (\d+))?$/, (_, task, rank) => rank === undefined ? task : `${task}/${rank}`);
}

function renderSeries(d) {
  $("series-card").hidden = !d.series.length;
  const state = { live: "good", ended: "soft", former: "soft", died: "bad" };
  $("series").innerHTML = table([col("series"), col("state"), col("version"), col("a second"), col("copied a second", true), col("observers", true), col("memory", true), col("")],
    d.series.map(s => [`${esc(s.name)}<br><span class="small">${esc(s.variables.map(v => `${v.name} ${v.shape.join("×")}`.trim()).join(", "))}, ${old(s.since_ms)}</span>`,
      `<span class="${state[s.state]}">${s.state}</span>`, s.newest + (s.withheld ? ` <span class="bad" title="withheld">−${s.withheld}</span>` : ""), count(s.rate), bytes(s.byte_rate), s.observers, bytes(s.reserved),
      `<button data-look="${s.id}">Look</button>`]), "no series");
}

function renderMemory(d) {
  const meter = (name, used, most) => `<div class="meter"><p><span>${esc(name)}</span><span>${bytes(used)}${most ? ` of ${bytes(most)}` : ""}</span></p>` +
    `<div><i style="width:${most ? Math.min(100, 100 * used / most) : 0}%"></i></div></div>`;
  const rows = d.workflows.map(w => meter(`workflow ${w.name}`, w.reserved, w.quota))
    .concat(d.regions.map(r => meter(`region ${r.name}, ${old(r.since_ms)}`, r.reserved, r.size)), d.series.map(s => meter(`series ${s.name}`, s.used, s.reserved)));
  $("memory").innerHTML = rows.join("") || '<p class="empty">nothing is shared</p>';
}

// The picture is requested again when its parts change, and when a phone is turned.
async function updateFlow() {
  if (!subject) return;
  const d = daemon(), narrow = innerWidth < 760;
  const parts = [subject.key, narrow, d.ports.map(p => [p.name, p.ends.filter(e => e.alive).map(e => e.task)]), d.series.map(s => s.name + s.publisher + s.state), d.regions.map(r => r.name), d.items.map(i => i.name).slice(0, 24)];
  const now = JSON.stringify(parts);
  if (now === graphOf) return;
  const fields = { direction: narrow ? "down" : "right" };
  if (subject.run) fields.run = subject.run.id; else fields.place = subject.place;
  graph = await (await ask(`api/graph?${query(fields)}`)).json();
  graphOf = now;
  $("flow").innerHTML = graph.svg;
  // A wide picture is scrolled with a finger. If it were shrunk to the page, its text could not be read.
  const svg = $("flow").querySelector("svg");
  if (narrow && svg) svg.style.minWidth = `${0.6 * svg.viewBox.baseVal.width}px`;
  colourFlow(d, subject.run);
}

function colourFlow(d, run) {
  if (!graph) return;
  const named = (list, name) => list.find(x => x.name === name || `${x.workflow}/${x.name}` === name);
  const moving = new Set();
  graph.nodes.forEach((node, n) => {
    const group = $("flow").querySelector(`[data-node="${n}"]`);
    if (!group) return;
    let text = node.kind, kind = "";
    if (node.kind === "task") {
      const ranks = run ? run.ranks.filter(r => r.task === node.name) : [];
      const members = d.members.filter(m => m.task === node.name || `${m.workflow}/${m.task}` === node.name);
      const cpus = (ranks.length ? ranks : members).reduce((all, r) => all + r.cpus, 0);
      const failed = ranks.filter(r => r.state === "failed").length, runs = ranks.filter(r => r.state === "runs").length;
      text = ranks.length ? (failed ? "failed" : runs ? `${cpus.toFixed(1)} CPUs` : ranks[0].state) : members.length ? `${cpus.toFixed(1)} CPUs` : "gone";
      kind = failed ? "dead" : ranks.length && !runs ? "over" : "";
    } else if (node.kind === "port") {
      const p = named(d.ports, node.name);
      if (p) {
        const waits = p.ends.filter(e => e.alive && e.waiting).length, dead = p.ends.filter(e => !e.alive).length;
        text = dead ? `${dead} gone` : p.rate > 0 ? `${count(p.rate)}/s · ${bytes(p.byte_rate)}/s` : waits ? `${waits} wait` : "at rest";
        kind = dead ? "dead" : p.rate > 0 ? "moving" : waits ? "waiting" : "";
      }
    } else if (node.kind === "series") {
      const s = named(d.series.filter(x => x.state !== "former"), node.name) || named(d.series, node.name);
      if (s) { text = s.rate > 0 ? `${count(s.rate)}/s · version ${s.newest}` : `${s.state}, version ${s.newest}`; kind = s.state === "died" ? "dead" : s.rate > 0 ? "moving" : ""; }
    } else if (node.kind === "region") {
      const r = named(d.regions, node.name);
      if (r) text = `${bytes(r.reserved)}`;
    } else if (node.kind === "item") {
      const i = named(d.items, node.name);
      if (i) { text = `of ${owner(i)}`; kind = i.rate > 0 ? "moving" : i.waiting ? "waiting" : ""; }
    }
    group.setAttribute("class", `node ${node.kind} ${kind}`);
    group.querySelector(".detail").textContent = text;
    if (kind === "moving") moving.add(n);
  });
  graph.edges.forEach(([a, b], n) => {
    const path = $("flow").querySelector(`[data-edge="${n}"]`);
    if (path) path.classList.toggle("moving", moving.has(a) || moving.has(b));
  });
}

async function updateLog() {
  if (!subject || !subject.run || !$("log-task").value) return;
  const text = await (await ask(`api/log?${query({ run: subject.run.id, task: $("log-task").value })}`)).text();
  const log = $("log"), bottom = log.scrollHeight - log.scrollTop - log.clientHeight < 8;
  if (log.textContent !== (text || "(nothing yet)")) log.textContent = text || "(nothing yet)";
  if (bottom) log.scrollTop = log.scrollHeight;
}

// The functions of the viewer follow.
function look(id) {
  const s = daemon().series.find(x => x.id === id);
  if (!s) return;
  viewed = { place: subject.place, workflow: s.workflow, series: s.name, variable: s.variables[0].name };
  frames = []; live = true; shown = null;
  $("viewer").hidden = false;
  $("viewer-name").textContent = s.name;
  $("viewer-variable").innerHTML = s.variables.map(v => `<option>${esc(v.name)}</option>`).join("");
  setLive(true);
  updateViewer().then(() => $("viewer").scrollIntoView({ block: "nearest" })).catch(failed);
}

function setLive(on) {
  live = on;
  $("viewer-live").setAttribute("aria-pressed", String(on));
}

async function updateViewer() {
  if (!viewed) return;
  const asked = viewed;
  let list;
  try {
    list = (await (await ask(`api/frames?${query(asked)}`)).json()).frames;
  } catch (error) {
    if (error.status !== 404) throw error;
    $("viewer-facts").textContent = error.message;
    return;
  }
  if (asked !== viewed) return;
  const at = frames.length ? frames[$("viewer-slider").value] : null;
  frames = list;
  const slider = $("viewer-slider");
  slider.max = Math.max(0, frames.length - 1);
  const same = at ? frames.findIndex(f => f.sequence === at.sequence) : -1;
  slider.value = live || same < 0 ? slider.max : same;
  await showFrame();
}

async function showFrame() {
  const frame = frames[$("viewer-slider").value];
  if (!frame) { $("viewer-facts").textContent = "no version yet, or its type has no picture"; return; }
  if (shown && shown.sequence === frame.sequence && shown.variable === viewed.variable) return;
  const buffer = await (await ask(`api/frame?${query({ ...viewed, sequence: frame.sequence })}`)).arrayBuffer();
  shown = { ...readFrame(buffer), variable: viewed.variable };
  drawFrame($("viewer-canvas"), shown);
  $("viewer-version").textContent = `version ${shown.sequence}`;
  const words = shown.attributes.map(([n, v]) => `${n} ${/^-?\d+\.\d{5,}(e-?\d+)?$/.test(v) ? number(+v) : v}`);
  $("viewer-facts").textContent = `${shown.shape.join(" × ")}; least ${number(shown.least)}, mean ${number(shown.mean)}, greatest ${number(shown.greatest)}` +
    `${words.length ? "; " + words.join(", ") : ""}; ${new Date(shown.time_ns / 1e6).toLocaleTimeString()}${shown.note ? "; " + shown.note.replace(/; $/, "") : ""}`;
}

function pointed(event) {
  if (!shown) return;
  const box = $("viewer-canvas").getBoundingClientRect();
  const x = Math.floor((event.clientX - box.left) / box.width * shown.columns), y = Math.floor((event.clientY - box.top) / box.height * shown.rows);
  const value = shown.values[(shown.rows > 1 ? y : 0) * shown.columns + Math.min(x, shown.columns - 1)];
  $("viewer-value").textContent = value === undefined ? "" : shown.rows > 1 ? `[${y}, ${x}] ${number(value)}` : `[${x}] ${number(value)}`;
}

function failed(error) {
  if (error.status === 401) {
    $("trouble").hidden = false;
    $("trouble").textContent = error.message;
    say(false, "no token");
  } else say(false, error.status ? error.message : "the server has ended");
}

async function round() {
  try {
    state = await (await ask("api/state")).json();
    say(true, new Date(state.time_ms).toLocaleTimeString());
    render();
    await Promise.all([updateFlow(), updateLog(), updateViewer()]);
  } catch (error) {
    failed(error);
  }
  setTimeout(round, document.hidden ? 5000 : 1000);
}

$("subject").addEventListener("change", () => {
  subject = { key: $("subject").value };
  viewed = null; $("viewer").hidden = true; graphOf = ""; graph = null; $("flow").innerHTML = "";
  render(); updateFlow().catch(failed);
});
$("log-task").addEventListener("change", () => updateLog().catch(failed));
$("series").addEventListener("click", event => { const id = event.target.dataset.look; if (id) look(Number(id)); });
$("viewer-variable").addEventListener("change", () => { viewed = { ...viewed, variable: $("viewer-variable").value }; frames = []; shown = null; updateViewer().catch(failed); });
$("viewer-slider").addEventListener("input", () => { setLive($("viewer-slider").value === $("viewer-slider").max && live); if ($("viewer-slider").value !== $("viewer-slider").max) setLive(false); showFrame().catch(failed); });
$("viewer-live").addEventListener("click", () => { setLive(!live); updateViewer().catch(failed); });
$("viewer-canvas").addEventListener("pointermove", pointed);
$("viewer-canvas").addEventListener("pointerleave", () => { $("viewer-value").textContent = ""; });
addEventListener("resize", () => { if (shown && shown.rows === 1) drawFrame($("viewer-canvas"), shown); });
round();
