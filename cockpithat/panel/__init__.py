"""The LLM panel (paper, section 3.4 and appendix A): analysts, their prompts, consensus and fallback.

:class:`cockpithat.panel.method.PanelAttribution` is the method; it is not imported here, so that settings
can be read without it.
"""
