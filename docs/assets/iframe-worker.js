// Search in pages that are opened as files: browsers start no worker there, so a hidden frame runs its script.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentDocument, script = inner.createElement("script");
      this.frame.contentWindow.postMessage = (data) => setTimeout(() => this.heard(data));
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve));
      script.src = url;
      inner.body.appendChild(script);
    }
    heard(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
