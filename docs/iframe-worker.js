// Browsers start no worker for pages that are opened as files. There the worker of the search runs in a hidden frame.
// Zensical loads its own shim from another host, unless a file with this name is configured.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = inner.document.createElement("script");
      script.src = url;
      this.started = new Promise((resolve) => (script.onload = resolve));
      script.onerror = (event) => this.onerror?.(event);
      inner.document.head.append(script);
    }
    postMessage(data) {
      const copy = structuredClone(data);
      this.started.then(() => this.frame.contentWindow?.onmessage({ data: copy }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
