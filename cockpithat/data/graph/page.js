"use strict";
(() => {
  // All text of the trace enters the page through textContent: nothing in it is ever parsed as markup.
  const data = JSON.parse(document.getElementById("data").textContent);
  const detail = document.getElementById("detail");
  const plot = document.querySelector(".plot");
  const rows = Array.from(document.querySelectorAll(".row"));
  const nodes = Array.from(document.querySelectorAll(".node"));
  const paths = Array.from(document.querySelectorAll(".plot .edge"));
  const into = data.steps.map(() => []);
  const outOf = data.steps.map(() => []);
  data.edges.forEach((edge) => {
    into[edge.target].push(edge);
    outOf[edge.source].push(edge);
  });
  let picked = -1;

  const make = (tag, text, cls) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (cls) node.className = cls;
    return node;
  };

  const section = (title, ...children) => {
    detail.append(make("h3", title), ...children);
  };

  const links = (edges, end) => {
    const list = make("ul");
    edges.forEach((edge) => {
      const item = make("li");
      const step = data.steps[edge[end]];
      const go = make("button", `${edge[end]} ${step.agent}`, "go");
      go.type = "button";
      go.addEventListener("click", () => pick(edge[end], true));
      item.append(go);
      edge.evidence.forEach((one) => {
        item.append(" ", make("span", one.signal, `signal ${one.signal}`), ` ${one.what}`);
      });
      list.append(item);
    });
    return list;
  };

  const table = (heads, lines) => {
    const grid = make("table");
    const top = make("tr");
    heads.forEach((head) => top.append(make("th", head)));
    grid.append(top);
    lines.forEach((cells) => {
      const line = make("tr");
      cells.forEach((cell) => line.append(make("td", cell)));
      grid.append(line);
    });
    return grid;
  };

  const show = (step) => {
    const s = data.steps[step];
    detail.replaceChildren(make("h2", `Step ${step} · ${s.agent}`));
    detail.append(make("p", [s.mode, s.target ? `to ${s.target}` : "", s.when].filter(Boolean).join(" · "), "meta"));
    s.notes.forEach((note) => detail.append(make("p", note, "verdict")));
    if (s.text) section("Says", make("pre", s.text));
    if (s.reasoning) section("Reasons", make("pre", s.reasoning));
    s.calls.forEach((call) => section(`Calls ${call.name}`, make("pre", call.content)));
    s.outputs.forEach((out) => section(`${out.error ? "Error from" : "Result of"} ${out.name}`, make("pre", out.content)));
    if (s.plan.length) section("Proposes", table(["item", "text"], s.plan));
    if (s.intended.length) section("Intends", table(["signal", "value"], s.intended));
    if (s.changes.length) section("Vehicle state changes", table(["signal", "before", "after"], s.changes));
    if (s.quality.length) section("Signals that cannot be relied on", table(["signal", "quality"], s.quality));
    if (s.memory.length) section("Memory", table(["access", "key", "value"], s.memory));
    if (s.environment) section("Environment", make("pre", s.environment));
    section(`Depends on (${into[step].length})`, into[step].length ? links(into[step], "source") : make("p", "nothing found", "empty"));
    section(`Needed by (${outOf[step].length})`, outOf[step].length ? links(outOf[step], "target") : make("p", "nothing found", "empty"));
  };

  const clear = () => {
    plot.classList.remove("picking");
    rows.forEach((row) => { row.setAttribute("aria-selected", "false"); row.classList.remove("near"); });
    nodes.forEach((node) => node.classList.remove("picked"));
    paths.forEach((path) => path.classList.remove("lit"));
  };

  const pick = (step, byHand) => {
    if (step < 0 || step >= rows.length) return;
    clear();
    rows.forEach((row, at) => { row.tabIndex = at === step ? 0 : -1; });
    rows[step].setAttribute("aria-selected", "true");
    nodes[step].classList.add("picked");
    plot.classList.add("picking");
    data.edges.forEach((edge, at) => {
      if (edge.source === step || edge.target === step) {
        paths[at].classList.add("lit");
        rows[edge.source === step ? edge.target : edge.source].classList.add("near");
      }
    });
    picked = step;
    show(step);
    if (byHand) {
      rows[step].focus({ preventScroll: true });
      rows[step].scrollIntoView({ block: "nearest" });
      try { history.replaceState(null, "", `#step-${step}`); } catch (_) { /* a file page may refuse it */ }
    }
  };

  rows.forEach((row, at) => row.addEventListener("click", () => pick(at, true)));
  nodes.forEach((node, at) => node.addEventListener("click", () => pick(at, true)));
  document.querySelectorAll("a[href^='#step-']").forEach((link) => {
    link.addEventListener("click", (event) => { event.preventDefault(); pick(Number(link.hash.slice(6)), true); });
  });
  document.querySelector(".rows").addEventListener("keydown", (event) => {
    const at = Math.max(0, rows.indexOf(document.activeElement));
    const moves = {
      ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: rows.length - 1,
      PageDown: Math.min(rows.length - 1, at + 10), PageUp: Math.max(0, at - 10),
      ArrowLeft: into[at] && into[at].length ? into[at][into[at].length - 1].source : at,
      ArrowRight: outOf[at] && outOf[at].length ? outOf[at][0].target : at,
      Enter: at, " ": at,
    };
    if (event.key === "Escape") { clear(); picked = -1; return; }
    if (event.key in moves && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      pick(moves[event.key], true);
    }
  });
  document.querySelectorAll(".tools input").forEach((box) => {
    box.addEventListener("change", () => {
      const on = new Set(Array.from(document.querySelectorAll(".tools input:checked"), (one) => one.value));
      paths.forEach((path, at) => {
        path.classList.toggle("off", !data.edges[at].evidence.some((one) => on.has(one.signal)));
      });
    });
  });

  const asked = /^#step-(\d+)$/.exec(location.hash);
  if (asked) pick(Number(asked[1]), false);
  else if (data.verdict !== null) pick(data.verdict, false);
})();
