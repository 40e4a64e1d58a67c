// Browsers start no Worker from file://, where this site must be searchable, too: a hidden frame takes its place.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.ready = new Promise((resolve) => {
      this.frame.addEventListener("load", () => this.start(url, resolve), { once: true });
    });
    document.body.append(this.frame);
  }

  start(url, resolve) {
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = inside.document.createElement("script");
    script.src = url;
    script.addEventListener("load", () => resolve(inside));
    inside.document.body.append(script);
  }

  postMessage(data) {
    this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
