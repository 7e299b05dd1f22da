// Draws the charts and joins them with the page's controls. What a chart shows is in its
// specification; selects and sliders are bound to it there.
"use strict";

const { config, specs } = JSON.parse(document.getElementById("charts").textContent);

/** Let arrow keys and the mouse move over a map of heads, and say what each head is. */
function explore(element, view, heads) {
  const map = element.closest(".map");
  const readout = document.getElementById(map.getAttribute("aria-describedby"));
  const at = new Map(heads.map((head) => [`${head.layer},${head.index}`, head]));
  const order = [...heads].sort((one, other) => one.layer - other.layer || one.index - other.index);
  const steps = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  let current = heads.find((head) => head.selected) ?? heads[0];

  const show = (head, marked) => {
    readout.textContent = head.words;
    view.signal("cursor", marked ? head.head : "").runAsync();
  };
  map.addEventListener("focus", () => show(current, true));
  map.addEventListener("blur", () => view.signal("cursor", "").runAsync());
  map.addEventListener("keydown", (event) => {
    let next;
    if (event.key in steps) {
      const [layer, index] = steps[event.key];
      next = at.get(`${current.layer + layer},${current.index + index}`) ?? current;
    } else if (event.key === "Home") next = order[0];
    else if (event.key === "End") next = order[order.length - 1];
    else return;
    event.preventDefault();
    current = next;
    show(current, true);
  });
  view.addEventListener("mouseover", (_event, item) => {
    const head = item?.datum && at.get(`${item.datum.layer},${item.datum.index}`);
    if (head) show(head, document.activeElement === map && head === current);
  });
}

/** Say which heads the slider's position knocks out. */
function tell(slider) {
  const heads = slider.dataset.heads.split(" ");
  const output = document.getElementById(slider.id.replace("-count", "-out"));
  const update = () => {
    const count = Number(slider.value);
    const text = count === 0 ? "0: none" : `${count}: ${heads.slice(0, count).join(", ")}`;
    output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  slider.addEventListener("input", update);
  update();
}

document.querySelectorAll("input[data-heads]").forEach(tell);
Promise.all(
  Object.entries(specs).map(async ([id, spec]) => {
    const element = document.getElementById(id);
    const heads = id.endsWith("-map") ? spec.data.values : null;
    const { view } = await vegaEmbed(element, spec, { renderer: "svg", actions: false, config });
    if (heads) explore(element, view, heads);
  }),
).then(() => {
  document.documentElement.dataset.drawn = "true";
});
